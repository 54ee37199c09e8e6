// Attention whose query heads share keys, or whose queries see only some of the earlier keys.
#include "kernels/attention_pass.hpp"

namespace tessera::kernels::attention_keys_test {
namespace {

using attention::OnDevice;
using attention::Pass;

// Sizes around the tiles of rows (for 16 bits on CUDA, both tile sizes) and of heads, windows
// around the tiles, and longer than a sequence.
constexpr AttentionShape kShapes[] = {
    {2, 9, 4, 8, 1, 0},         {2, 9, 4, 8, 2, 3},     {1, 65, 4, 8, 4, 1},
    {1, 131, 4, 8, 2, 0},       {1, 300, 2, 8, 1, 70},  {1, 65, 2, 64, 1, 100},
    {2, 67, 2, 64, 1, 3},       {1, 197, 2, 64, 2, 65}, {1, 33, 4, 128, 2, 1},
    {1, 99, 2, 128, 1, 33},     {1, 33, 4, 160, 2, 0},  {1, 67, 2, 160, 1, 3},
    {1, 35, 6, 64, 2, 0, 0.05F}};

// Documents of 20 tokens on average.
std::vector<std::int32_t> random_documents(const AttentionShape& shape) {
  std::mt19937 generator{7};
  std::bernoulli_distribution begins{0.05};
  std::vector<std::int32_t> first_key;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    std::int32_t start = 0;
    for (std::int32_t t = 0; t < shape.seq; ++t) {
      if (begins(generator)) { start = t; }
      first_key.push_back(start);
    }
  }
  return first_key;
}

/// Element d of head `head` of a row, where heads lie side by side.
std::size_t at(const AttentionShape& shape, std::int64_t heads, std::int64_t row, std::int64_t head,
               std::int64_t d = 0) {
  return static_cast<std::size_t>((row * heads + head) * shape.head_size + d);
}
std::int64_t packed_heads(const AttentionShape& shape) {
  return shape.heads + 2 * kv_heads_of(shape);
}

TEST(AttentionReference, DocumentsAreSequencesOfTheirOwn) {
  constexpr AttentionShape shape{1, 12, 2, 4, 1};
  constexpr std::int64_t starts[] = {0, 5, 6, 12};
  Pass all{DType::fp32, shape};
  for (std::size_t i = 0; i < 3; ++i) {
    all.first_key.resize(static_cast<std::size_t>(starts[i + 1]),
                         static_cast<std::int32_t>(starts[i]));
  }
  all.forward();
  all.backward();
  for (std::size_t i = 0; i < 3; ++i) {
    AttentionShape part = shape;
    part.seq = starts[i + 1] - starts[i];
    const auto piece = [&](const Floats& of, std::int64_t heads) {
      const auto first = of.begin() + starts[i] * heads * shape.head_size;
      return Floats(first, first + part.seq * heads * shape.head_size);
    };
    Pass alone{DType::fp32, part};
    alone.qkv = piece(all.qkv, packed_heads(shape));
    alone.dy = piece(all.dy, shape.heads);
    alone.forward();
    alone.backward();
    EXPECT_EQ(alone.y, piece(all.y, shape.heads));
    EXPECT_EQ(alone.dqkv, piece(all.dqkv, packed_heads(shape)));
  }
}

class AttentionKeys : public attention::AttentionTest {
 protected:
  /// Whether cuDNN may compute the plain attention: its bits are not those of Tessera's kernels.
  static bool may_be_cudnn(DType dtype, float dropout) {
    return on_cuda() && size_of(dtype) == 2 && dropout == 0.0F;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, AttentionKeys, backends(), backend_name);

TEST_P(AttentionKeys, AreThoseOfTheReference) {
  for (const AttentionShape& shape : kShapes) {
    for (const DType dtype : kValueDTypes) {
      if (TESSERA_SANITIZED && dtype == DType::fp16) { continue; }  // like bf16
      for (const bool documents : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << shape.seq << " rows, head size " << shape.head_size << ", window "
                     << shape.window << (documents ? ", documents, " : ", ") << to_string(dtype));
        Pass pass{dtype, shape};
        if (documents) { pass.first_key = random_documents(shape); }
        expect_close(pass);
      }
    }
  }
}

TEST_P(AttentionKeys, AreDroppedAsTheReferenceDropsThem) {
  for (const AttentionShape& shape :
       {AttentionShape{2, 9, 4, 8, 2, 3}, AttentionShape{1, 197, 2, 16, 1, 70},
        AttentionShape{1, 67, 2, 72, 1, 33}, AttentionShape{1, 33, 2, 160, 1, 0}}) {
    for (const DType dtype : kValueDTypes) {
      SCOPED_TRACE(testing::Message() << shape.seq << " rows, head size " << shape.head_size << ", "
                                      << to_string(dtype));
      Pass pass{dtype, shape, 0.3F};
      expect_close(pass);
      pass.first_key = random_documents(shape);
      expect_close(pass);
    }
  }
}

// A scale that is stated, a window as long as the sequence and one document hide nothing.
TEST_P(AttentionKeys, ThatAreAllSeenHaveTheBitsOfPlainAttention) {
  for (const AttentionShape& plain :
       {AttentionShape{2, 70, 2, 8}, AttentionShape{1, 131, 1, 64}, AttentionShape{1, 67, 1, 128},
        AttentionShape{1, 67, 1, 160}}) {
    for (const DType dtype : kValueDTypes) {
      for (const float dropout : {0.0F, 0.3F}) {
        if (may_be_cudnn(dtype, dropout) && plain.head_size <= 128) { continue; }
        SCOPED_TRACE(testing::Message() << plain.seq << " rows, head size " << plain.head_size
                                        << ", " << to_string(dtype) << ", dropout " << dropout);
        OnDevice expected{bench(), Pass{dtype, plain, dropout}};
        run(expected);
        for (const std::int64_t more : {0, 1000}) {
          AttentionShape stated = plain;
          stated.kv_heads = plain.heads;
          stated.window = plain.seq + more;
          stated.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(plain.head_size)));
          Pass pass{dtype, stated, dropout};
          pass.first_key.assign(static_cast<std::size_t>(plain.batch * plain.seq), 0);
          OnDevice actual{bench(), pass};
          run(actual);
          EXPECT_EQ(actual.y.read(), expected.y.read());
          EXPECT_EQ(actual.log_sum_exp.read(), expected.log_sum_exp.read());
          EXPECT_EQ(actual.dqkv.read(), expected.dqkv.read());
        }
      }
    }
  }
}

// Repeated by hand for each of their query heads, keys and values give the same y and dq.
TEST_P(AttentionKeys, OfAGroupAreReadAsIfRepeated) {
  for (const AttentionShape& shape :
       {AttentionShape{2, 9, 4, 8, 2}, AttentionShape{1, 131, 2, 24, 1},
        AttentionShape{1, 67, 2, 128, 1}, AttentionShape{1, 67, 2, 160, 1}}) {
    for (const DType dtype : kValueDTypes) {
      for (const float dropout : {0.0F, 0.3F}) {
        if (may_be_cudnn(dtype, dropout) && shape.head_size <= 128) { continue; }
        SCOPED_TRACE(testing::Message() << shape.seq << " rows, head size " << shape.head_size
                                        << ", " << to_string(dtype) << ", dropout " << dropout);
        const Pass grouped{dtype, shape, dropout};
        AttentionShape repeated_shape = shape;
        repeated_shape.kv_heads = 0;
        Pass repeated{dtype, repeated_shape, dropout};
        const auto all_heads = [&](const auto& body) {
          for (std::int64_t row = 0; row < shape.batch * shape.seq; ++row) {
            for (std::int64_t head = 0; head < shape.heads; ++head) { body(row, head); }
          }
        };
        all_heads([&](std::int64_t row, std::int64_t head) {
          const std::int64_t key_head = shape.heads + head / group_of(shape);
          const std::int64_t from[] = {head, key_head, key_head + shape.kv_heads};
          for (std::int64_t part = 0; part < 3; ++part) {
            std::copy_n(&grouped.qkv[at(shape, packed_heads(shape), row, from[part])],
                        shape.head_size,
                        &repeated.qkv[at(shape, 3 * shape.heads, row, part * shape.heads + head)]);
          }
        });
        OnDevice actual{bench(), grouped}, expected{bench(), repeated};
        run(actual);
        run(expected);
        EXPECT_EQ(actual.y.read(), expected.y.read());
        const Floats dqkv = actual.dqkv.floats(), dqkv_repeated = expected.dqkv.floats();
        all_heads([&](std::int64_t row, std::int64_t head) {
          for (std::int64_t d = 0; d < shape.head_size; ++d) {
            ASSERT_EQ(dqkv[at(shape, packed_heads(shape), row, head, d)],
                      dqkv_repeated[at(shape, 3 * shape.heads, row, head, d)]);
          }
        });
      }
    }
  }
}

// A query that sees only itself has its value as the mean.
TEST_P(AttentionKeys, OfAWindowOfOneAreTheQueriesOwn) {
  constexpr AttentionShape shape{2, 150, 4, 8, 2, 1};
  for (const DType dtype : kValueDTypes) {
    const Pass pass{dtype, shape};
    OnDevice actual{bench(), pass};
    run(actual);
    const Floats y = actual.y.floats();
    for (std::int64_t row = 0; row < shape.batch * shape.seq; ++row) {
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t v_head = shape.heads + shape.kv_heads + head / group_of(shape);
        for (std::int64_t d = 0; d < shape.head_size; ++d) {
          const float v = pass.qkv[at(shape, packed_heads(shape), row, v_head, d)];
          // A score of up to 8, rounded once more than its maximum, and the quotient.
          ASSERT_NEAR(y[at(shape, shape.heads, row, head, d)], v, roundings(24, std::abs(v)));
        }
      }
    }
  }
}

TEST_P(AttentionKeys, BeforeTheFirstAndAfterTheQueryAreClamped) {
  constexpr AttentionShape shape{2, 70, 2, 8};
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Pass inside{dtype, shape}, outside{dtype, shape};
    for (std::int64_t row = 0; row < shape.batch * shape.seq; ++row) {
      const auto t = static_cast<std::int32_t>(row % shape.seq);
      inside.first_key.push_back(t < 40 ? 0 : t);
      outside.first_key.push_back(t < 40 ? INT32_MIN + t : INT32_MAX);
    }
    OnDevice expected{bench(), inside}, actual{bench(), outside};
    run(expected);
    run(actual);
    EXPECT_EQ(actual.y.read(), expected.y.read());
    EXPECT_EQ(actual.dqkv.read(), expected.dqkv.read());
  }
}

// What queries then see is unspecified, but nothing is read or written out of bounds.
TEST_P(AttentionKeys, ThatDecreaseStayInBounds) {
  for (const AttentionShape& shape :
       {AttentionShape{2, 130, 2, 8, 1}, AttentionShape{1, 192, 2, 64}}) {
    for (const DType dtype : kValueDTypes) {
      for (const float dropout : {0.0F, 0.3F}) {
        Pass pass{dtype, shape, dropout};
        for (std::int64_t row = 0; row < shape.batch * shape.seq; ++row) {
          const auto t = static_cast<std::int32_t>(row % shape.seq);
          pass.first_key.push_back(t % 64 < 4 ? t : (t % 5 == 0 ? -t : 0));
        }
        OnDevice actual{bench(), pass};
        run(actual);
        EXPECT_EQ(std::ssize(actual.y.floats()), std::ssize(pass.y)) << "it has ended";
      }
    }
  }
}

// The bits of a sample do not depend on the other samples, nor on their documents.
TEST_P(AttentionKeys, OfOtherSamplesDoNotMatter) {
  constexpr AttentionShape all{3, 70, 4, 24, 2, 33}, one{1, 70, 4, 24, 2, 33};
  for (const DType dtype : kValueDTypes) {
    Pass pass{dtype, all};
    pass.first_key = random_documents(all);
    OnDevice whole{bench(), pass};
    run(whole);
    const Floats y = whole.y.floats(), dqkv = whole.dqkv.floats();
    for (std::int64_t sample = 0; sample < all.batch; ++sample) {
      const auto part = [&](const auto& of) {
        const std::int64_t elems = std::ssize(of) / all.batch;
        return std::remove_cvref_t<decltype(of)>(of.begin() + sample * elems,
                                                 of.begin() + (sample + 1) * elems);
      };
      Pass alone{dtype, one};
      alone.qkv = part(pass.qkv);
      alone.dy = part(pass.dy);
      alone.first_key = part(pass.first_key);
      OnDevice actual{bench(), alone};
      run(actual);
      EXPECT_TRUE(same_bits(actual.y.floats(), part(y)));
      EXPECT_TRUE(same_bits(actual.dqkv.floats(), part(dqkv)));
    }
  }
}

TEST(AttentionKeysOnThreads, HaveTheSameBits) {
  Pass pass{DType::bf16, {3, 70, 4, 8, 2, 33}, 0.3F};
  pass.first_key = random_documents(pass.shape);
  DeviceBench one{make_cpu_device()}, three{make_cpu_device({.threads = 3})};
  OnDevice expected{one, pass}, actual{three, pass, 0, 0, 3};
  expected.run(one);
  actual.run(three);
  EXPECT_EQ(actual.y.read(), expected.y.read());
  EXPECT_EQ(actual.dqkv.read(), expected.dqkv.read());
}

}  // namespace
}  // namespace tessera::kernels::attention_keys_test
