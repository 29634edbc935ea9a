# expect: kind=exception line=3
import os
os.environ["OPENAI_API_KEY"]
