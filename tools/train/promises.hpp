#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// The part of a rank's peak that a plan can know: with NCCL, all but what NCCL takes for its
/// communicators from the start, which depends on the machine (docs/nccl.md).
[[nodiscard]] std::size_t plannable_peak(const Settings& settings, std::size_t peak_bytes,
                                         const CategoryBytes& at_peak);

/// Error, which names strategy, rank and both numbers, unless every rank held what was planned, to
/// the byte. `peaks` are the ranks' plannable peaks.
void require_as_planned(const Job& job, Strategy strategy, std::span<const std::size_t> peaks);
/// The same for a training run, with the host pool of every rank.
void require_as_planned(const Job& job, const RunResult& result);

/// Whether a and b have the same bits, or are both NaN.
[[nodiscard]] bool same_loss(double a, double b) noexcept;

/// Error, which names strategies, step and both losses, unless the losses of `results` agree as
/// promised for the same explicit options: to the bit in every step. Hybrid with one group and
/// hybrid with groups of one add gradients in different orders, so their losses agree only in the
/// first step, before an update; with NCCL nothing is promised (docs/hybrid.md, docs/nccl.md).
void require_same_losses(const Settings& settings, const std::vector<RunResult>& results);

/// What is wrong with a run whose last step is `last`: its loss is not a number, or its last steps
/// were skipped. Empty if nothing is. A single skipped step is normal: dynamic loss scaling finds
/// its scale that way.
[[nodiscard]] std::string divergence(const StepReport& last);
/// Warns of divergence on standard error; `title` precedes the message.
void warn_if_diverged(const std::string& title, const RunResult& result);

}  // namespace tessera::tools
