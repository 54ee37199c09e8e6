#pragma once

#include <span>

namespace tessera::device {

/// An instruction set: whether this build uses it and whether the processor supports it.
struct ProcessorFeature {
  const char* name;
  bool compiled_for;
  bool present;
};

/// The features that the build may use, checked on this processor.
[[nodiscard]] std::span<const ProcessorFeature> processor_features();

/// Throws ConfigError naming what the processor lacks and how to rebuild.
void require_processor(std::span<const ProcessorFeature> features);

}  // namespace tessera::device
