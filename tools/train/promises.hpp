#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// What of a rank's peak a plan can know: over NCCL all but what NCCL takes for its communicators
/// from the start on, which depends on the machine (docs/nccl.md).
[[nodiscard]] std::size_t plannable_peak(const Settings& settings, std::size_t peak_bytes,
                                         const CategoryBytes& at_peak);

/// Error, which names strategy, rank and both numbers, unless every rank has held what was planned,
/// to the byte. `peaks` are by rank, of what can be planned.
void require_as_planned(const Job& job, Strategy strategy, std::span<const std::size_t> peaks);
/// The same for a training run, with the host pool of every rank.
void require_as_planned(const Job& job, const RunResult& result);

/// Whether they are the same bits, or no numbers both.
[[nodiscard]] bool same_loss(double a, double b) noexcept;

/// Error, which names strategies, step and both losses, unless the losses of `results` agree as far
/// as they are promised to with the same explicit options: to the bit in every step. Under hybrid
/// between one group and groups of one, which adds gradients in another order, that is so of the
/// first step alone, before an update; over NCCL nothing is promised (docs/hybrid.md,
/// docs/nccl.md).
void require_same_losses(const Settings& settings, const std::vector<RunResult>& results);

/// What is wrong with a run that has ended with `last`: its loss is not a number, or the steps
/// before the end were skipped. Empty if nothing is. One skipped step alone is how dynamic loss
/// scaling finds its scale.
[[nodiscard]] std::string divergence(const StepReport& last);
/// Warns of it on standard error; `title` stands before.
void warn_if_diverged(const std::string& title, const RunResult& result);

}  // namespace tessera::tools
