# expect: stage=integrity kind=bad_reply
import os
os.symlink("../given/job.json", "reply.json")
os._exit(0)
