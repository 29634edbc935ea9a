# expect: kind=exception line=2
open("/tmp/cutegen-evil", "w").write("x")
