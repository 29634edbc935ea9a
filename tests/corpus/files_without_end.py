# expect: stage=limits kind=disk
n = 0
while True:
    open(f"{n}.txt", "w").close()
    n += 1
