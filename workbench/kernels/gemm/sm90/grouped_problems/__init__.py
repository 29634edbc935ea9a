"""Products of many problems of different sizes in one persistent launch, with a TMA descriptor for each problem."""
