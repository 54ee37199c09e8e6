#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

/// What one step did: the same bits on every rank and, with the same explicit options, strategy.
struct StepReport {
  std::int64_t step = 0;   ///< from 1
  double loss = 0.0;       ///< mean over ranks of the losses given to `step`
  double grad_norm = 0.0;  ///< L2 norm of the averaged gradient, before clipping
  float clip_coefficient = 1.0F;
  float lr = 0.0F;
  float loss_scale = 1.0F;            ///< that the gradients of this step were scaled by
  float next_loss_scale = 1.0F;       ///< of the step that comes
  bool skipped = false;               ///< the gradient was not finite: nothing was updated
  std::int64_t skipped_in_a_row = 0;  ///< steps, this one included
};

/// Persistent bytes of this rank: what the strategy table counts, slots not included.
struct ModelStateBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t host = 0;  ///< in the host pool instead (ModelOptions::offload): no part of the above
  friend bool operator==(const ModelStateBytes&, const ModelStateBytes&) = default;
};

enum class StateTensor : std::uint8_t {
  parameters,
  gradients,  ///< averaged over ranks and micro-batches, not clipped; complete before `step`
};

}  // namespace tessera
