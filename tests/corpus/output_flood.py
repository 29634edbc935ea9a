# expect: stage=limits kind=output_flood
import time
print("x" * (1 << 24))
time.sleep(30)
