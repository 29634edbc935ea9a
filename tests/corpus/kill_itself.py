# expect: stage=run kind=signal
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
