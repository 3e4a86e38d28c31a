"""Layer 5, public: what a test of an env, of a training run or of Stepherd itself needs.

Import from the modules: `leftovers` (what a piece of code leaves behind) and `no_leftovers` (the same as a pytest
fixture; the only module here that needs pytest).
"""
