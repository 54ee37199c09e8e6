// Made of what tests include, and of nothing else: see precompiled.hpp.
