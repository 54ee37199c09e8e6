#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/torch/random.hpp"
#include "tessera/world/world.hpp"
#include "torch/intercept.hpp"

namespace tessera::torch {

/// Returns a seed that depends on both numbers. SplitMix64 (Steele, Lea and Flood, OOPSLA 2014):
/// libtorch's generator takes the lower 32 bits.
[[nodiscard]] std::uint64_t mixed_seed(std::uint64_t seed, std::uint64_t place) noexcept;

/// Returns the seed of a rank's generator.
[[nodiscard]] std::uint64_t seed_of_rank(std::uint64_t seed, int rank,
                                         RandomNumbers numbers) noexcept;

/// Where a generator of the CPU is: the seed it was given, and its state.
struct ProgramRandom {
  std::uint64_t seed;
  at::Tensor state;
};

/// The generators that one rank draws from: on the CPU, and on its CUDA device if it has one.
///
/// Threads: the rank's own, and those of autograd while they work for it.
class RankRandom : public c10::DebugInfoBase {
 public:
  /// Makes generators at `seed`. `cuda` is the rank's device, if it is one.
  explicit RankRandom(std::uint64_t seed, std::optional<at::Device> cuda = {});

  /// Returns the generators that passes on this rank's thread draw from: those of a living model
  /// with the same seed and numbers, so that models of one rank do not draw the same numbers. Null
  /// if the rank has generators already (DrawsFrom), which are kept.
  [[nodiscard]] static std::shared_ptr<RankRandom> for_passes(World& world, std::uint64_t seed,
                                                              RandomNumbers numbers);
  /// Returns those that this thread's operators draw from, or null.
  [[nodiscard]] static RankRandom* current() noexcept;

  /// Returns the generator for tensors on `device`, or null: others keep libtorch's default.
  [[nodiscard]] const at::Generator* on(const at::Device& device) const noexcept;
  [[nodiscard]] const std::vector<at::Generator>& all() const noexcept { return generators_; }
  void seed(std::uint64_t seed);
  /// Draws the numbers that `program` would draw next; on CUDA, the first after its seed.
  void go_on_from(const ProgramRandom& program);

  /// Runs an operator that draws from the default generator of a CUDA device, and takes no other.
  /// While it runs, that generator has the state of the rank's.
  void stand_in(const at::Device& cuda, const std::function<void()>& run_operator);

 private:
  std::vector<at::Generator> generators_;  // the CPU's first
};

/// While one lives, operators on this thread draw from `random`. It does nothing if that is null.
/// Guards nest.
class DrawsFrom {
 public:
  explicit DrawsFrom(const std::shared_ptr<RankRandom>& random);
  DrawsFrom(const DrawsFrom&) = delete;
  DrawsFrom& operator=(const DrawsFrom&) = delete;

 private:
  std::optional<Interception> interception_;
  std::optional<c10::DebugInfoGuard> carried_;
};

/// Returns where libtorch's default generator of the CPU is.
[[nodiscard]] ProgramRandom random_of_program();

}  // namespace tessera::torch
