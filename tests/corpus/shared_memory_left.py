# expect: kind=exception line=2
open("/dev/shm/cutegen-evil", "w")
