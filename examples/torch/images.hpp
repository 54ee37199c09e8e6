#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <random>

/// Images of 16 by 16 pixels and their classes.
struct Images {
  static constexpr int kClasses = 4;
  static constexpr int kSize = 16;
  torch::Tensor pixels;  ///< [count, 1, 16, 16]
  torch::Tensor labels;  ///< [count]: rows, columns, squares or a disc
};

/// Draws images number `first` to `first + count - 1` of an endless series: each depends only on
/// its number.
inline Images draw_images(std::int64_t first, std::int64_t count) {
  constexpr int kSize = Images::kSize;
  Images images{torch::empty({count, 1, kSize, kSize}), torch::empty({count}, torch::kLong)};
  auto* pixel = images.pixels.data_ptr<float>();
  auto* label = images.labels.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    std::mt19937 random{static_cast<std::uint32_t>(first + i)};
    const auto below = [&](std::uint32_t limit) { return static_cast<int>(random() % limit); };
    const int kind = below(Images::kClasses);
    const int width = 2 + below(3);
    const int dx = below(kSize);
    const int dy = below(kSize);
    label[i] = kind;
    for (int y = 0; y < kSize; ++y) {
      for (int x = 0; x < kSize; ++x) {
        const bool row = (y + dy) / width % 2 == 0;
        const bool column = (x + dx) / width % 2 == 0;
        const int from_middle = (x - dx) * (x - dx) + (y - dy) * (y - dy);
        const bool on = kind == 0   ? row
                        : kind == 1 ? column
                        : kind == 2 ? row != column
                                    : from_middle < 6 * width * width;
        const auto noise = static_cast<float>(below(1000)) / 1000.0F - 0.5F;
        *pixel++ = (on ? 0.5F : -0.5F) + noise;
      }
    }
  }
  return images;
}
