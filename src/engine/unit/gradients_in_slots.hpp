#pragma once

#include "engine/unit/gradient_home.hpp"

namespace tessera::engine {

/// Backward adds into a slot, which is reduced in place and then added to what stays: on the
/// device, or in the host pool if the host updates the unit.
class GradientsInSlots final : public GradientHome {
 public:
  /// `ring`: the slots that backward adds into; it outlives the home.
  GradientsInSlots(const Parts& parts, SlotRing& ring) : GradientHome{parts}, ring_{ring} {}

  bool can_open() const override;
  bool conclude() override;
  Category category() const override { return Category::reduce; }
  bool in_slot() const override { return slot_ != nullptr; }
  bool stays_in_place() const override { return ring_.size() == 1; }
  bool shares_slots_with(const GradientHome& other) const override;
  View resident(std::size_t segment) const override;
  void end_export() override;
  void require_slots_free() const override { ring_.require_all_free(); }

 private:
  bool make_room() override;
  void* base() const override { return slot_ != nullptr ? slot_->data() : kept(); }
  bool leaves_each_time() const override { return true; }
  void keep_on_device() override;
  void keep_on_host() override;
  bool exports_in_slot() const override;
  void take_export_slot() override;
  void bring_from_host();
  void give_back(Stream last);

  SlotRing& ring_;
  Slot* slot_ = nullptr;  // while taken
};

}  // namespace tessera::engine
