#pragma once

#include "engine/unit/gradient_home.hpp"

namespace tessera::engine {

/// Backward adds into whole gradients that stay, and the last micro-batch reduces them in place. If
/// the host updates the unit, the host pool gets a copy.
class DirectGradients final : public GradientHome {
 public:
  explicit DirectGradients(const Parts& parts) : GradientHome{parts} {}

  View resident(std::size_t segment) const override { return updated(segment); }

 private:
  bool make_room() override;
  void* base() const override { return kept(); }
  bool leaves_each_time() const override { return false; }
  void keep_on_device() override {}
  void keep_on_host() override;
};

}  // namespace tessera::engine
