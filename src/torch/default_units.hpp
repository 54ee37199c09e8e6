#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::torch {

/// A module of at most this many elements, 32 KiB in fp32, is joined to a neighbour. On any
/// interconnect the latency of gathering it exceeds the time of its bytes. A BatchNorm of 4096
/// channels and a LayerNorm of width 4096 have as many.
inline constexpr std::int64_t kTinyElems = 8192;
/// A unit that tiny neighbours join has at least this many times their elements, so that they add
/// little to the slots of its size.
inline constexpr std::int64_t kLeastRatio = 16;

/// Modules that form a unit together.
struct DefaultUnit {
  std::string name;  ///< "conv1", or "conv1..bn1" for the modules from conv1 to bn1
  std::vector<const ::torch::nn::Module*> modules;
};

/// The units of `module` where its user chooses none, in the module's order: its children with
/// parameters. A child is opened, so that its children take its place, if
/// - it is a ModuleList, ModuleDict or Sequential, or contains one, except within another list;
/// - it has more than half of the elements of the whole module.
///
/// Parameters of opened modules themselves are in no unit. A child that is registered twice is in
/// the place where it is found first. Tiny children are joined to the child of the same parent
/// before them, else to the one behind them, if that is large enough.
[[nodiscard]] std::vector<DefaultUnit> default_units(const ::torch::nn::Module& module);

}  // namespace tessera::torch
