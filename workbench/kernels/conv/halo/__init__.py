"""Convolutions by wgmma whose tiles of the input are loaded once, with their halo, for all taps of the filter."""
