"""RMSNorm and LayerNorm, fused with the residual's addition."""
