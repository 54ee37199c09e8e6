#pragma once

#include <span>

namespace tessera {

/// A set of instructions: whether this build uses it and whether the processor has it.
struct ProcessorFeature {
  const char* name;
  bool compiled_for;
  bool present;
};

/// Those that the build may use, asked of this processor.
[[nodiscard]] std::span<const ProcessorFeature> processor_features();

/// ConfigError that names what the processor lacks and how to rebuild.
void require_processor(std::span<const ProcessorFeature> features);

}  // namespace tessera
