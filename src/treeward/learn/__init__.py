"""Every torch model. torch is imported when one is trained, never before: it is in the extra `train`."""
