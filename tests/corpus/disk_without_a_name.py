# expect: stage=limits kind=disk
import os
import time
for n in range(3):
    handle = os.open("left.bin", os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(handle, 0, 900 << 20)
    os.unlink("left.bin")
time.sleep(60)
