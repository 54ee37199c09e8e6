// Parameters are read in scopes; only the optimizer writes them.
// expected: conversion from 'tessera::ConstTensor' to 'float\*'
#include "tessera/engine/sharded_model.hpp"

float first(tessera::ShardedModel& model, tessera::Unit unit) {
  const auto scope = model.forward(unit);
#ifdef MENDED
  const float* weight = scope["weight"];
#else
  float* weight = scope["weight"];
#endif
  return weight[0];
}
