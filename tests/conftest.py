from hypothesis import settings

# The first call of a kernel compiles it, which no deadline should count.
settings.register_profile("treeward", deadline=None)
settings.load_profile("treeward")
