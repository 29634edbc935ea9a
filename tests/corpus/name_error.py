# expect: stage=import kind=name line=2
torch.nn.Module
