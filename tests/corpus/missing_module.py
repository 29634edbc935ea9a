# expect: stage=import kind=missing_module line=2
import no_such_package
