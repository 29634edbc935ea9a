EPS = 1e-5
