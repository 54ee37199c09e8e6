#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// What a step's losses are means over, where not every token (or sample) counts.
///
/// The trainer sums over the tokens that count. It divides the gradient of each micro-batch by one
/// number D, the same for all micro-batches and ranks, such as the number of all tokens of a
/// micro-batch; and its loss, the sum over the micro-batches, by D * ModelOptions::accumulate. The
/// step turns both into means over the tokens that all ranks counted together in all micro-batches:
/// one sum of counts, no mean of means.
struct LossCount {
  /// The device address of the number of tokens that this rank's micro-batches counted. Null where
  /// the rank gives no loss.
  const double* counted = nullptr;
  /// D * ModelOptions::accumulate, the same on all ranks: the number of all tokens of a rank's
  /// micro-batches, if D is that of one. 0: every token counts.
  double of = 0.0;
};

/// The results of one step. They have the same bits on every rank and, with the same explicit
/// options, under every strategy.
struct StepReport {
  std::int64_t step = 0;  ///< The number of the step, from 1.
  double loss = 0.0;  ///< The mean over data ranks of the losses, or over what LossCount counts.
  double grad_norm = 0.0;             ///< The L2 norm of the averaged gradient, before clipping.
  float clip_coefficient = 1.0F;      ///< The factor that clipping applied; 1 if it did not.
  float lr = 0.0F;                    ///< The learning rate, without the factors of groups.
  float loss_scale = 1.0F;            ///< The loss scale of this step.
  float next_loss_scale = 1.0F;       ///< The loss scale of the next step.
  bool skipped = false;               ///< Whether nothing was updated: the gradient was not finite.
  std::int64_t skipped_in_a_row = 0;  ///< The steps skipped in a row, up to this one.
  /// The units that had fewer backward than forward scopes in a micro-batch of this step, in order
  /// of declaration: the gradients that are missing counted as zeros. Empty with Checks::strict,
  /// which refuses such a step. With stages along `pipe` a rank names those of its place.
  std::vector<std::string> without_backward = {};
};

/// The bytes that this rank keeps between steps, without slots: the entries of Strategy's table.
struct ModelStateBytes {
  std::size_t parameters = 0;  ///< Bytes of parameters on the device.
  std::size_t gradients = 0;   ///< Bytes of gradients on the device.
  std::size_t optimizer = 0;   ///< Bytes of master weights and optimizer state on the device.
  std::size_t host = 0;  ///< Bytes in the host pool (ModelOptions::offload), beside the above.
  friend bool operator==(const ModelStateBytes&, const ModelStateBytes&) = default;
};

/// The tensors that ShardedModel::export_state returns.
enum class StateTensor : std::uint8_t {
  parameters,  ///< The parameters, after the last update.
  gradients,   ///< The gradients, averaged over ranks and micro-batches and not clipped. They are
               ///< complete between the last micro-batch of a step and `step`.
};

/// The norms of a gradient that ShardedModel::gradient_norms returns.
enum class Norm : std::uint8_t {
  two,       ///< The square root of the sum of squares.
  infinity,  ///< The largest absolute value; infinite where a value is not a number.
};

}  // namespace tessera
