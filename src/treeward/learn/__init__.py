"""Every torch model. torch is in the extra `train`, and is imported only when a model is trained or used."""
