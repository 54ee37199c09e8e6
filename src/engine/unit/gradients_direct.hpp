#pragma once

#include <functional>
#include <utility>

#include "engine/unit/gradient_home.hpp"

namespace tessera::engine {

/// Backward adds into whole gradients that stay, and the last micro-batch reduces them in place. If
/// the host updates the unit, the host pool gets a copy. Gradients that come after the reduction go
/// through a slot, which is reduced and added to what was.
class DirectGradients final : public GradientHome {
 public:
  /// `late_slots` gives the slots for gradients that come after the reduction, which outlive it.
  DirectGradients(const Parts& parts, std::function<SlotRing&()> late_slots)
      : GradientHome{parts}, late_slots_{std::move(late_slots)} {}

  bool can_open() const override;
  Category category() const override {
    return slot_ != nullptr ? Category::reduce : Category::gradients;
  }
  bool in_slot() const override { return slot_ != nullptr; }

  View resident(std::size_t segment) const override;

 private:
  bool make_room() override;
  void* base() const override { return slot_ != nullptr ? slot_->data() : kept(); }
  bool leaves_each_time() const override { return slot_ != nullptr; }
  void keep_on_device() override;
  void keep_on_host() override;

  std::function<SlotRing&()> late_slots_;
  Slot* slot_ = nullptr;  // while taken
};

}  // namespace tessera::engine
