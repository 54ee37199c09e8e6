#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/model/memory_checks.hpp"
#include "engine/model/non_finite_search.hpp"
#include "engine/model/pass.hpp"
#include "tessera/engine/model_options.hpp"

namespace tessera::engine {

/// The forward and backward passes of a step's micro-batches. They run one after the other (F B F
/// B), or several are in flight (F1 F2 B1 F3 B2 B3): forward scopes of later micro-batches precede
/// backward scopes of earlier ones. Gradients are added in micro-batch order, so both give the same
/// bits.
///
///   micro-batch:   forward -> backward -> ended
///
/// Micro-batches that run one after the other end when the next one begins, or with the step. One
/// of several in flight ends when another begins and its own backward pass is complete.
class TrainingPass : public Pass {
 public:
  /// What a pass needs of its model. `update_order` and `checks` outlive it; `checks` may be null.
  struct Setup {
    const ModelOptions& options;
    bool order_is_declared = false;
    const std::vector<std::size_t>& update_order;
    MemoryChecks* checks = nullptr;
  };
  TrainingPass(const PassPlace& place, UseOrder& order, const Setup& setup)
      : Pass{place, order}, setup_{setup} {}

  /// Opens a unit in micro-batch `given` of the step, or in the only one in flight, and returns its
  /// number. Throws ContractError if the call is out of order.
  int open(UseKind kind, std::size_t unit, std::optional<int> given);
  void close(UseKind kind, std::size_t unit, int micro_batch);
  /// Opens a unit's parameters in a micro-batch that is in flight. Throws ContractError otherwise.
  void open_read(std::size_t unit, int micro_batch);
  void close_read(std::size_t unit, int micro_batch);
  /// Ends all micro-batches. Throws ContractError if a scope is open.
  void finish();

  /// The number of micro-batches begun in this step.
  [[nodiscard]] int begun() const noexcept { return begun_; }
  [[nodiscard]] int ended() const noexcept { return begun_ - static_cast<int>(in_flight_.size()); }
  void next_step() noexcept {
    begun_ = 0;
    without_backward_.clear();
  }
  /// Units with fewer backward than forward scopes in a micro-batch that has ended in this step.
  [[nodiscard]] std::vector<std::string> without_backward() const;

  /// Used from now on; null for none.
  void search_with(NonFiniteSearch* search) noexcept { search_ = search; }
  /// Takes the output of a forward scope of `unit`.
  void watch(std::size_t unit, int micro_batch, ConstView output);

 private:
  enum class Stage : std::uint8_t { forward, backward };
  struct MicroBatch {
    int index = 0;
    Stage stage = Stage::forward;
    int open_scopes = 0;
  };

  void begin();
  void end_first();
  void end_those_that_are_back();
  [[nodiscard]] bool is_back(const MicroBatch& micro_batch) const;
  [[nodiscard]] MicroBatch& forward_of(std::optional<int> given);
  [[nodiscard]] MicroBatch& backward_of(std::size_t unit, std::optional<int> given);
  /// Throws ContractError if a later micro-batch already has gradients of the unit.
  void require_none_later(UseKind kind, std::size_t unit, int micro_batch) const;
  /// Whether the unit, or an owner of its aliases, has anything trainable.
  [[nodiscard]] bool has_gradients(std::size_t unit) const;
  [[nodiscard]] MicroBatch* find(int index) noexcept;
  void require_one_at_most() const;
  void check_backward(int micro_batch);
  void check_gradients_can_open(std::size_t unit, int micro_batch) const;
  [[nodiscard]] std::string slot_owners(std::size_t unit) const;
  [[nodiscard]] std::string more_gradient_slots(int micro_batch) const;
  [[nodiscard]] bool is_last(int micro_batch) const noexcept {
    return micro_batch + 1 == setup_.options.accumulate;
  }
  [[nodiscard]] Use use_of(UseKind kind, std::size_t unit, int micro_batch) const noexcept {
    return {kind, unit, micro_batch - first_of_round_};
  }
  template <class Visit>
  void for_gradients(std::size_t unit, int open_scopes, const Visit& visit);
  void search_parameters(std::size_t unit, int micro_batch);
  void search_gradients(std::size_t unit, int micro_batch);

  Setup setup_;
  NonFiniteSearch* search_ = nullptr;
  int begun_ = 0;
  int first_of_round_ = 0;
  std::vector<MicroBatch> in_flight_;            // in the order of the step
  std::set<std::size_t> without_backward_ = {};  // units, in this step
};

/// Throws ConfigError if a CUDA graph is being captured and the options ask for what one graph
/// cannot hold.
void require_no_graph(const World& world, const ModelOptions& options);

}  // namespace tessera::engine
