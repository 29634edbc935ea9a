# expect: stage=limits kind=memory
import mmap
import time
held = mmap.mmap(-1, 2 << 30)  # shared, so the pages stay when this process gives them back
for at in range(0, 2 << 30, 64 << 20):
    held[at : at + (64 << 20)] = bytes(64 << 20)
    held.madvise(mmap.MADV_DONTNEED, at, 64 << 20)
time.sleep(60)
