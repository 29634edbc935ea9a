# expect: kind=exception line=3
import os, pwd
open(pwd.getpwuid(os.getuid()).pw_dir + "/.bashrc").read()
