# expect: stage=integrity kind=bad_reply
import os
with open("reply.json", "wb") as file:
    file.truncate(300 << 20)
os._exit(0)
