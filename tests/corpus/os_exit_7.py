# expect: stage=run kind=early_exit
import os
os._exit(7)
