# expect: stage=import kind=no_model
import torch
