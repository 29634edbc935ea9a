# expect: kind=exception line=3
import os
os.listdir(os.path.join(os.getcwd(), "..", ".."))
