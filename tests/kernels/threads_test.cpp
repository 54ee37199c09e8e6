// No kernel's result depends on the number of threads.
#include <bit>
#include <cstdint>

#include "device/cpu/parallel.hpp"
#include "kernels/matmul/matmul_split.hpp"
#include "kernels/values.hpp"

namespace tessera::kernels::threads_test {
namespace {

constexpr int kThreads[] = {2, 3, 4, 7};

/// The output of a kernel, and the scalar that some kernels sum up.
struct Result {
  std::vector<Floats> tensors;
  double sum = 0.0;

  [[nodiscard]] bool same(const Result& other) const {
    bool same = std::bit_cast<std::uint64_t>(sum) == std::bit_cast<std::uint64_t>(other.sum);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      same = same && same_bits(tensors[i], other.tensors[i]);
    }
    return same;
  }
};

/// `run(stream, threads)` must give the same Result for every number of threads.
template <class Run>
void expect_same_on_all(const Run& run) {
  const DeviceBench single{make_cpu_device({.threads = 1})};
  const Result expected = run(single.stream(), 1);
  for (const int threads : kThreads) {
    const DeviceBench machine{make_cpu_device({.threads = threads})};
    EXPECT_TRUE(run(machine.stream(), threads).same(expected)) << threads << " threads";
  }
}

const Table& cpu = cpu_table();
constexpr std::int64_t kElems[] = {0, 1, 8191, 8193, 100'003};

TEST(Threads, ShareALoop) {
  const DeviceBench machine{make_cpu_device({.threads = 3})};
  EXPECT_EQ(device::threads_of(machine.stream()), 3);
  const DeviceBench single{make_cpu_device({.threads = 1})};
  EXPECT_EQ(device::threads_of(single.stream()), 1);
  EXPECT_EQ(device::pool_of(single.stream()), nullptr);
}

TEST(Threads, ElementwiseKernels) {
  for (const std::int64_t elems : kElems) {
    SCOPED_TRACE(elems);
    const Floats a = random_floats(elems, 1), b = random_floats(elems, 2);
    expect_same_on_all([&](Stream stream, int) {
      Result r{{filled(elems, kNan), filled(elems, kNan), filled(elems, kNan), a, a, a}};
      cpu.add(a.data(), b.data(), r.tensors[0].data(), elems, stream);
      cpu.gelu_forward(a.data(), r.tensors[1].data(), elems, stream, GELU::tanh);
      cpu.gelu_backward(a.data(), b.data(), r.tensors[2].data(), elems, stream, GELU::tanh);
      cpu.accumulate(r.tensors[3].data(), b.data(), elems, stream);
      cpu.scale(r.tensors[4].data(), 0.3F, elems, stream);
      float* const dropped = r.tensors[5].data();
      cpu.dropout({.x = dropped, .y = dropped, .samples = 1, .sample_elems = elems, .p = 0.4F},
                  stream);
      return r;
    });
  }
}

TEST(Threads, QuantisedWeights) {
  for (const std::int64_t elems : kElems) {
    SCOPED_TRACE(elems);
    const Floats x = random_floats(elems, 1);
    const std::int64_t blocks = nf4_blocks(elems);
    expect_same_on_all([&](Stream stream, int) {
      Result r{{filled(blocks, kNan), filled(nf4_groups(blocks), kNan), filled(elems, kNan),
                filled(int8_blocks(elems), kNan), filled(elems, kNan)}};
      auto& t = r.tensors;
      std::vector<std::uint8_t> codes(x.size() / 2 + 1), absmax(t[0].size());
      std::vector<std::int8_t> bytes(x.size());
      cpu.nf4_quantise({x.data(), codes.data(), t[0].data(), elems}, stream);
      cpu.nf4_quantise_absmax({t[0].data(), 2.0F, absmax.data(), t[1].data(), blocks}, stream);
      cpu.nf4_dequantise({{codes.data(), absmax.data(), t[1].data(), 2.0F}, t[2].data(), elems},
                         stream);
      cpu.int8_quantise({x.data(), bytes.data(), t[3].data(), elems}, stream);
      cpu.int8_dequantise({{bytes.data(), t[3].data()}, t[4].data(), elems}, stream);
      return r;
    });
  }
}

TEST(Threads, Optimizers) {
  for (const std::int64_t elems : kElems) {
    SCOPED_TRACE(elems);
    const Floats weight = random_floats(elems, 1), gradient = random_floats(elems, 2);
    const StepScalars scalars{.gradient_factor = 0.7F, .apply = 1, .updates = 3};
    expect_same_on_all([&](Stream stream, int) {
      Result r{
          {weight, filled(elems, 0.1F), filled(elems, 0.2F), weight, filled(elems, 0.3F), weight}};
      auto& t = r.tensors;
      const UpdateRun first{.master = t[0].data(),
                            .gradient = gradient.data(),
                            .first = t[1].data(),
                            .second = t[2].data(),
                            .elems = elems};
      const UpdateRun second{
          .master = t[3].data(), .gradient = gradient.data(), .first = t[4].data(), .elems = elems};
      const UpdateRun third{.master = t[5].data(), .gradient = gradient.data(), .elems = elems};
      cpu.adamw(alone(first, AdamW{.weight_decay = 0.1F}), &scalars, stream);
      const SGD momentum{.lr = 0.1F, .momentum = 0.9F};
      cpu.sgd(std::array{RuledRun<SGD>{second, momentum}, RuledRun<SGD>{third, {.lr = 0.1F}}},
              &scalars, stream);
      return r;
    });
  }
}

TEST(Threads, SquaredNorm) {
  for (const std::int64_t elems : {0L, 1L, 8193L, 100'003L, 3'000'001L}) {
    SCOPED_TRACE(elems);
    const Floats x = random_floats(elems, 3);
    expect_same_on_all([&](Stream stream, int) {
      Result r;
      r.sum = 0.1;
      cpu.squared_norm(std::array{NormTerm{x.data(), elems, &r.sum}}, stream);
      return r;
    });
  }
}

struct Sizes {
  std::int64_t rows;
  std::int64_t columns;
};
constexpr Sizes kMatrices[] = {{1, 5}, {37, 300}, {333, 65}, {1030, 257}};

TEST(Threads, KernelsOfRowsAndColumns) {
  for (const auto [rows, columns] : kMatrices) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    const Floats x = random_floats(rows * columns, 1), dy = random_floats(rows * columns, 2);
    const Floats weight = random_floats(columns, 3), bias = random_floats(columns, 4);
    expect_same_on_all([&](Stream stream, int) {
      Result r{{x, bias, filled(rows * columns, kNan), filled(rows, kNan), filled(rows, kNan), dy,
                weight, bias}};
      auto& t = r.tensors;
      cpu.add_bias(t[0].data(), bias.data(), rows, columns, stream);
      cpu.bias_gradient(dy.data(), t[1].data(), rows, columns, Write::add, stream);
      cpu.layer_norm_forward({x.data(), weight.data(), bias.data(), t[2].data(), t[3].data(),
                              t[4].data(), rows, columns},
                             stream);
      cpu.layer_norm_backward({x.data(), weight.data(), t[3].data(), t[4].data(), dy.data(),
                               t[5].data(), t[6].data(), t[7].data(), rows, columns},
                              stream);
      return r;
    });
    expect_same_on_all([&](Stream stream, int) {
      Result r{{filled(rows * columns, kNan), filled(rows, kNan), dy, weight, x, x, x}};
      auto& t = r.tensors;
      cpu.rms_norm_forward({x.data(), weight.data(), t[0].data(), t[1].data(), rows, columns},
                           stream);
      cpu.rms_norm_backward({x.data(), weight.data(), t[1].data(), dy.data(), t[2].data(),
                             t[3].data(), rows, columns},
                            stream);
      cpu.glu_forward({x.data(), dy.data(), t[4].data(), rows, columns}, stream);
      float* const gate = t[5].data();
      float* const up = t[6].data();
      cpu.glu_backward({gate, up, dy.data(), gate, up, rows, columns}, stream);
      return r;
    });
    const std::int64_t even = columns / 2 * 2;
    expect_same_on_all([&](Stream stream, int) {
      Result r{{x, dy}};
      // The values of the table do not matter.
      cpu.rotary_forward({r.tensors[0].data(), dy.data(), x.data(), 1, rows, 1, even, columns},
                         stream);
      cpu.rotary_backward({r.tensors[1].data(), x.data(), dy.data(), 1, rows, 1, even, columns},
                          stream);
      return r;
    });
  }
}

TEST(Threads, CrossEntropy) {
  for (const auto [rows, classes] : kMatrices) {
    for (const float gradient_scale : {0.0F, 0.25F}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << classes << ", " << gradient_scale);
      const Floats logits = random_floats(rows * classes, 1, 4.0F);
      std::vector<std::int32_t> targets;
      for (std::int64_t r = 0; r < rows; ++r) {
        targets.push_back(static_cast<std::int32_t>(r * 7 % classes));
      }
      expect_same_on_all([&](Stream stream, int) {
        Result result{{logits}};
        cpu.cross_entropy({result.tensors[0].data(), targets.data(), &result.sum, rows, classes,
                           gradient_scale, 0.125},
                          stream);
        return result;
      });
    }
  }
}

TEST(Threads, Embedding) {
  constexpr std::int64_t batch = 3, seq = 50, hidden = 203, vocab = 11;
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < batch * seq; ++i) {
    tokens.push_back(static_cast<std::int32_t>(i * i % vocab));
  }
  const Floats words = random_floats(vocab * hidden, 1), places = random_floats(seq * hidden, 2);
  const Floats dy = random_floats(batch * seq * hidden, 3);
  expect_same_on_all([&](Stream stream, int) {
    Result r{{filled(batch * seq * hidden, kNan), words, places}};
    auto& t = r.tensors;
    cpu.embedding_forward(
        {tokens.data(), words.data(), places.data(), t[0].data(), batch, seq, hidden}, stream);
    cpu.embedding_backward({tokens.data(), dy.data(), t[1].data(), t[2].data(), batch, seq, hidden},
                           stream);
    return r;
  });
}

TEST(Threads, Attention) {
  for (const AttentionShape shape :
       {AttentionShape{1, 1, 1, 1}, AttentionShape{2, 70, 3, 20}, AttentionShape{1, 150, 5, 33}}) {
    SCOPED_TRACE(testing::Message() << shape.batch << " " << shape.seq << " " << shape.heads);
    const std::int64_t values = shape.batch * shape.seq * shape.heads * shape.head_size;
    const Floats qkv = random_floats(3 * values, 1), dy = random_floats(values, 2);
    expect_same_on_all([&](Stream stream, int threads) {
      Result r{
          {filled(values, kNan), filled(values / shape.head_size, kNan), filled(3 * values, kNan)}};
      auto& t = r.tensors;
      DeviceBench memory{make_cpu_device()};
      DeviceArray<float> workspace{
          memory, cpu.attention_workspace_elems(shape, DType::fp32, {.threads = threads})};
      cpu.attention_forward({qkv.data(), t[0].data(), t[1].data(), workspace.data(), shape},
                            stream);
      cpu.attention_backward(
          {qkv.data(), t[0].data(), t[1].data(), dy.data(), t[2].data(), workspace.data(), shape},
          stream);
      return r;
    });
  }
}

// Sizes around the units of the split, long sums computed in several blocks, and row and column
// vectors.
struct ProductSizes {
  std::int64_t m, n, k;
};
constexpr ProductSizes kProducts[] = {
    {1, 4000, 300},   {4000, 1, 300}, {2, 3000, 400},   {3000, 2, 400}, {97, 193, 257},
    {131, 101, 1001}, {63, 50, 2500}, {256, 256, 1024}, {7, 1111, 333}, {1111, 7, 333},
    {145, 143, 300},  {17, 97, 4001}, {201, 49, 129},   {33, 611, 64},  {515, 770, 31},
    {10, 100, 9000},  {1024, 95, 23}, {40, 47, 1000}};

void expect_same_products(MatMul p) {
  const Floats a = random_floats(p.m * p.k, 1), b = random_floats(p.k * p.n, 2);
  const Floats c = random_floats(p.m * p.n, 3);
  p.a = a.data();
  p.b = b.data();
  expect_same_on_all([&](Stream stream, int) {
    Result r{{c}};
    MatMul product = p;
    product.c = r.tensors[0].data();
    cpu.matmul(product, stream);
    return r;
  });
}

TEST(Threads, MatMuls) {
  for (const auto [m, n, k] : kProducts) {
    for (const Transpose a : {Transpose::no, Transpose::yes}) {
      for (const Transpose b : {Transpose::no, Transpose::yes}) {
        if (TESSERA_SANITIZED && a != b) { continue; }
        SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", transposed "
                                        << (a == Transpose::yes) << (b == Transpose::yes));
        expect_same_products({.a = nullptr,
                              .b = nullptr,
                              .c = nullptr,
                              .m = m,
                              .n = n,
                              .k = k,
                              .transpose_a = a,
                              .transpose_b = b,
                              .write = a == b ? Write::overwrite : Write::add});
      }
    }
  }
}

// Any split, in every variant that this processor can run.
TEST(MatMulSplit, PiecesGiveTheBitsOfTheWholeInEveryVariant) {
  for (const MatMulVariant& variant : matmul_variants()) {
    for (const ProductSizes& sizes : kProducts) {
      const Floats a = random_floats(sizes.m * sizes.k, 1), b = random_floats(sizes.k * sizes.n, 2);
      Floats expected = filled(sizes.m * sizes.n, 0.5F);
      StridedMatMul product{.a = {a.data(), sizes.k},
                            .transpose_a = Transpose::no,
                            .b = {b.data(), sizes.n},
                            .transpose_b = Transpose::no,
                            .c = {expected.data(), sizes.n},
                            .m = sizes.m,
                            .n = sizes.n,
                            .k = sizes.k};
      variant.run(product);
      for (int threads = 2; threads <= 16; threads += TESSERA_SANITIZED ? 7 : 1) {
        const MatMulSplit split = split_matmul(product.m, product.n, product.k, threads);
        Floats c = filled(sizes.m * sizes.n, 0.5F);
        product.c.data = c.data();
        for (std::int64_t i = 0; i < split.pieces(); ++i) {
          variant.run(piece_of(product, split, i));
        }
        EXPECT_TRUE(same_bits(c, expected)) << variant.name << ": " << sizes.m << " x " << sizes.n
                                            << " x " << sizes.k << " for " << threads;
      }
    }
  }
}

TEST(MatMulSplit, EveryElementIsInOnePieceAndNoPieceIsSmall) {
  for (std::int64_t m = 2; m <= 130; ++m) {
    for (const std::int64_t n : {2L, 47L, 48L, 95L, 96L, 97L, 200L, 500L}) {
      for (const int threads : {1, 2, 3, 5, 8}) {
        const MatMulSplit split = split_matmul(m, n, 1 << 20, threads);
        ASSERT_LE(split.pieces(), threads);
        std::vector<int> owners(static_cast<std::size_t>(m * n), 0);
        for (std::int64_t i = 0; i < split.pieces(); ++i) {
          StridedMatMul whole{};
          whole.m = m;
          whole.n = n;
          whole.c = {reinterpret_cast<float*>(owners.data()), n};
          whole.a = whole.b = {whole.c.data, n};  // not read, but addresses of pieces are computed
          const StridedMatMul piece = piece_of(whole, split, i);
          ASSERT_GE(piece.m, std::min<std::int64_t>(m, 8));
          ASSERT_GE(piece.n, std::min<std::int64_t>(n, 48));
          for (std::int64_t r = 0; r < piece.m; ++r) {
            for (std::int64_t c = 0; c < piece.n; ++c) {
              ++owners[static_cast<std::size_t>(piece.c.data - whole.c.data + r * n + c)];
            }
          }
        }
        ASSERT_EQ(std::count(owners.begin(), owners.end(), 1), m * n)
            << m << " x " << n << " for " << threads;
      }
    }
  }
}

TEST(MatMulSplit, LargeProductsUseEveryThread) {
  for (int threads = 1; threads <= 8; ++threads) {
    EXPECT_EQ(split_matmul(1024, 1024, 256, threads).pieces(), threads);
  }
  EXPECT_EQ(split_matmul(16, 16, 16, 8).pieces(), 1);
}

}  // namespace
}  // namespace tessera::kernels::threads_test
