#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "tessera/base/dtype.hpp"

namespace tessera::torch {

class Passes;
class ParameterHome;

/// Returns libtorch's name of a dtype.
[[nodiscard]] at::ScalarType scalar_type(DType dtype) noexcept;

/// What a place is of.
enum class PlaceKind : std::uint8_t {
  parameter,
  gradient,
  magnitude,  ///< The absolute values of a gradient: it has no memory at any time.
};

/// A libtorch storage without its own memory. It points to the current memory of a parameter, or of
/// its gradient; tensors and views that autograd has saved point there too. Operators on its
/// tensors are shown to Passes, on any thread.
class Place {
 public:
  Place(ParameterHome& home, PlaceKind kind) noexcept : home_{&home}, kind_{kind} {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  /// Leaves a tensor that outlives it with its own memory full of NaN, or on CUDA without memory.
  ~Place();

  /// Makes the storage and returns a tensor over it: contiguous, of this shape, dtype and device.
  [[nodiscard]] at::Tensor make(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device);
  /// Points to `data`; null: to nothing.
  void point(void* data) noexcept;
  [[nodiscard]] bool is_open() const noexcept;
  [[nodiscard]] ParameterHome& home() const noexcept { return *home_; }
  [[nodiscard]] PlaceKind kind() const noexcept { return kind_; }

  /// Returns the place that `tensor` views, or null. Any thread.
  [[nodiscard]] static Place* of(const at::Tensor& tensor) noexcept;

 private:
  ParameterHome* home_;
  PlaceKind kind_;
  c10::Device device_{c10::kCPU};
  c10::Storage storage_;
  std::string closed_text_;  // for who reads the memory while there is none
};

/// Returns whether `tensor` is a parameter whose sharded module has ended.
[[nodiscard]] bool has_been_given_up(const at::Tensor& tensor) noexcept;

/// A parameter of a sharded module: the module's tensor, with the unit's memory while its unit is
/// open and none otherwise.
class ParameterHome {
 public:
  /// `tensor` is the module's own handle. `name` is its name in the whole module, `in_unit` within
  /// unit number `unit` of `passes`.
  ParameterHome(at::Tensor tensor, std::string name, std::string in_unit, std::size_t unit,
                Passes& passes);
  /// Leaves an adopted tensor on the meta device, so that libtorch rejects reads and graphs that
  /// have saved it. A tensor with its own memory keeps it.
  ~ParameterHome();
  ParameterHome(const ParameterHome&) = delete;
  ParameterHome& operator=(const ParameterHome&) = delete;

  /// Removes the tensor's own memory, unless it is on meta and has none: from now on it has `dtype`
  /// and the place's memory on `device`.
  void adopt(DType dtype, at::Device device);
  void open(const void* data) noexcept;
  void close() noexcept;
  /// Gives the tensor a gradient in `data`, to which autograd adds.
  void open_gradient(void* data, DType dtype);
  /// Takes the memory away. The tensor keeps its gradient as a stand-in (GradientStandIns), which
  /// waits for the step.
  void close_gradient() noexcept;
  /// The step has used the gradient: the stand-in stays, as a gradient does in libtorch.
  void gradient_is_used() noexcept { waits_ = false; }
  /// Removes the stand-in.
  void drop_gradient() noexcept;
  /// Whether a gradient of this step has been reduced, and waits for the step.
  [[nodiscard]] bool gradient_waits() const noexcept { return waits_; }
  /// The program has set a gradient that waits to zero.
  void zero_gradient() noexcept { zeroed_ = true; }
  /// Whether it has, or has removed the gradient: it is not to be used.
  [[nodiscard]] bool gradient_is_dropped() const;
  /// Whether a gradient waits and the program has given the tensor another one.
  [[nodiscard]] bool gradient_is_foreign() const;
  /// What was dropped has been set to zero: it waits as zeros, unless it was removed.
  void gradient_is_cleared() noexcept {
    zeroed_ = false;
    waits_ = waits_ && tensor_.grad().defined();
  }
  /// Returns a tensor that stands for the absolute values of the gradient.
  [[nodiscard]] at::Tensor magnitude();
  /// Throws ContractError if the program has given the tensor other memory, or trains it although
  /// it was frozen.
  void require_own() const;
  /// Returns whether autograd's gradient of the tensor is the one in the place.
  [[nodiscard]] bool has_own_gradient() const;

  [[nodiscard]] const at::Tensor& tensor() const noexcept { return tensor_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& in_unit() const noexcept { return in_unit_; }
  [[nodiscard]] std::size_t unit() const noexcept { return unit_; }
  [[nodiscard]] bool trainable() const noexcept { return trainable_; }
  /// Whether a backward pass of this step trains it; else the step leaves it as it is.
  [[nodiscard]] bool trained() const noexcept { return trained_; }
  void set_trained(bool trained) noexcept { trained_ = trained; }
  [[nodiscard]] Passes& passes() const noexcept { return *passes_; }

 private:
  at::Tensor tensor_;
  std::string name_;
  std::string in_unit_;
  std::size_t unit_;
  Passes* passes_;
  bool trainable_;
  bool trained_ = false;
  bool waits_ = false;
  bool zeroed_ = false;
  Place parameter_{*this, PlaceKind::parameter};
  Place gradient_{*this, PlaceKind::gradient};
  Place magnitude_{*this, PlaceKind::magnitude};
  at::Tensor gradient_tensor_;
  at::Tensor magnitude_tensor_;
};

}  // namespace tessera::torch
