#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "support/reference_gpt.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/nn/decoder.hpp"

// Conversions between the float64 reference and the library's float32.
namespace tessera::test {

using reference::Matrix;
using reference::Tensors;

inline std::vector<float> floats(const Matrix& matrix) {
  std::vector<float> result(static_cast<std::size_t>(matrix.size()));
  std::transform(matrix.data(), matrix.data() + matrix.size(), result.begin(),
                 [](double value) { return static_cast<float>(value); });
  return result;
}

inline Matrix matrix(std::span<const float> values, Eigen::Index rows) {
  Matrix result(rows, static_cast<Eigen::Index>(values.size()) / rows);
  std::copy(values.begin(), values.end(), result.data());
  return result;
}

/// Normal values that float32 holds exactly, so that both sides start from the same values.
inline Matrix random_matrix(Eigen::Index rows, Eigen::Index columns, std::uint32_t seed,
                            double stddev = 1.0) {
  std::mt19937 random{seed};
  std::normal_distribution<double> normal{0.0, stddev};
  Matrix result(rows, columns);
  for (double& value : result.reshaped()) {
    value = static_cast<double>(static_cast<float>(normal(random)));
  }
  return result;
}

/// Random tensors of the shapes of `like`; norm weights around 1.
inline Tensors random_like(const Tensors& like, std::uint32_t seed, double stddev) {
  Tensors result;
  for (const auto& [name, tensor] : like) {
    Matrix values = random_matrix(tensor.rows(), tensor.cols(), ++seed, stddev);
    if (name.find("ln_") != std::string::npos && name.ends_with("weight")) {
      values = (values.array() + 1.0).cast<float>().cast<double>();
    }
    result.emplace(name, values);
  }
  return result;
}

inline std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab,
                                               std::uint32_t seed) {
  std::mt19937 random{seed};
  std::uniform_int_distribution<std::int32_t> token{0, static_cast<std::int32_t>(vocab) - 1};
  std::vector<std::int32_t> result(static_cast<std::size_t>(count));
  std::ranges::generate(result, [&] { return token(random); });
  return result;
}

/// |actual - expected| <= tolerance |expected|, in the Frobenius norm.
inline void expect_close(const Matrix& actual, const Matrix& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  ASSERT_GT(expected.norm(), 0.0) << what << ": nothing to compare";
  const Matrix shaped = actual.reshaped<Eigen::RowMajor>(expected.rows(), expected.cols());
  EXPECT_LE((shaped - expected).norm() / expected.norm(), tolerance) << what;
}

inline void expect_close(const Tensors& actual, const Tensors& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    expect_close(actual.at(name), tensor, tolerance, name);
  }
}

/// Initial parameters from `tensors`, found by `name`.
inline Initializer initial_from(const Tensors& tensors, std::string (*name)(const ParameterInfo&)) {
  return
      [&tensors, name](const ParameterInfo& parameter, std::int64_t first, std::span<float> out) {
        const double* values = tensors.at(name(parameter)).data() + first;
        for (float& value : out) { value = static_cast<float>(*values++); }
      };
}

/// All parameters or gradients, unsharded, by `name`; a vector is one row. Collective.
inline Tensors state_of(ShardedModel& model, StateTensor what,
                        std::string (*name)(const ParameterInfo&)) {
  Tensors result;
  model.export_state(what, [&](const ParameterInfo& parameter, std::span<const float> values) {
    const bool vector = parameter.shape.rank() == 1;
    result.emplace(name(parameter), matrix(values, vector ? 1 : parameter.shape.dims().front()));
  });
  return result;
}

}  // namespace tessera::test
