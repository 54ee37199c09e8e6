#pragma once

namespace tessera {

/// A member of a struct, or of a struct in it: Member<&Outer::inner, &Inner::value>.
template <auto... Path>
struct Member {
  /// The member in `object`, which may be const.
  template <class Object>
  [[nodiscard]] static constexpr auto& of(Object& object) noexcept {
    return (object.*....*Path);
  }
};

}  // namespace tessera
