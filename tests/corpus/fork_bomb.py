# expect: stage=limits
import os
while True:
    os.fork()
