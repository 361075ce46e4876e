// Every way in which a tensor's elements can be stored.
#include "onnx/test_model.h"

namespace situ::onnx::test {
namespace {

Bytes with_tensor(const Bytes& t) {
  GraphText g;
  g.initializers = {t};
  return model(g.bytes());
}

Tensor read(const Bytes& t) {
  const ImportedModel m = import_ok(with_tensor(t));
  return m.graph.values.empty() ? Tensor() : m.graph.value(0).constant;  // it keeps the map alive
}

std::vector<int> bytes_of(const Tensor& t) {
  std::vector<int> result;
  for (int64_t i = 0; i < t.bytes(); ++i) result.push_back(std::to_integer<int>(t.view().data[i]));
  return result;
}

// int32_data holds every type of up to 32 bits, one list entry per element (per byte below 8 bits).
Bytes int32_tensor(DType type, const std::vector<int64_t>& dims, const std::vector<int32_t>& values, bool packed) {
  Bytes t = tensor("w", type, dims);
  protozero::pbf_writer w(t);
  if (packed)
    w.add_packed_int32(5, values.begin(), values.end());
  else
    for (int32_t v : values) w.add_int32(5, v);
  return t;
}

TEST(TensorProto, Int32Data) {
  for (bool packed : {false, true}) {
    EXPECT_EQ(read(int32_tensor(DType::kI32, {3}, {-1, 0, 1 << 30}, packed)).to_i64(),
              (std::vector<int64_t>{-1, 0, 1 << 30}));
    EXPECT_EQ(read(int32_tensor(DType::kI8, {2}, {-128, 127}, packed)).to_i64(), (std::vector<int64_t>{-128, 127}));
    EXPECT_EQ(read(int32_tensor(DType::kU8, {2}, {0, 255}, packed)).to_i64(), (std::vector<int64_t>{0, 255}));
    EXPECT_EQ(read(int32_tensor(DType::kU16, {1}, {65535}, packed)).to_i64(), (std::vector<int64_t>{65535}));
    EXPECT_EQ(read(int32_tensor(DType::kI16, {1}, {-3}, packed)).to_i64(), (std::vector<int64_t>{-3}));
    EXPECT_EQ(read(int32_tensor(DType::kBool, {2}, {0, 4}, packed)).to_i64(), (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(read(int32_tensor(DType::kF16, {2}, {0x3c00, 0xc000}, packed)).to_f64(), (std::vector<double>{1, -2}));
    EXPECT_EQ(read(int32_tensor(DType::kBF16, {1}, {0x3f80}, packed)).to_f64(), (std::vector<double>{1}));
    EXPECT_EQ(bytes_of(read(int32_tensor(DType::kF8E4M3FN, {2}, {0x38, 0xff}, packed))),
              (std::vector<int>{0x38, 0xff}));
    EXPECT_EQ(bytes_of(read(int32_tensor(DType::kU4, {3}, {0x21, 0x03}, packed))), (std::vector<int>{0x21, 0x03}));
    EXPECT_EQ(bytes_of(read(int32_tensor(DType::kI2, {5}, {0xe4, 0x01}, packed))), (std::vector<int>{0xe4, 0x01}));
  }
}

TEST(TensorProto, OtherTypedLists) {
  for (bool packed : {false, true}) {
    const std::vector<float> floats = {1.5f, -2};
    const std::vector<double> doubles = {1.25, -8};
    const std::vector<int64_t> ints = {INT64_MIN, -1};
    const std::vector<uint64_t> unsigned_ints = {7, 0xffffffffu};
    const auto typed = [&](DType type, const std::vector<int64_t>& dims, auto write) {
      Bytes t = tensor("w", type, dims);
      protozero::pbf_writer w(t);
      write(w);
      return read(t);
    };
    const auto add_floats = [&](auto& w) {
      if (packed)
        w.add_packed_float(4, floats.begin(), floats.end());
      else
        for (float v : floats) w.add_float(4, v);
    };
    const auto add_doubles = [&](auto& w) {
      if (packed)
        w.add_packed_double(10, doubles.begin(), doubles.end());
      else
        for (double v : doubles) w.add_double(10, v);
    };
    const auto add_ints = [&](auto& w) {
      if (packed)
        w.add_packed_int64(7, ints.begin(), ints.end());
      else
        for (int64_t v : ints) w.add_int64(7, v);
    };
    const auto add_unsigned = [&](auto& w) {
      if (packed)
        w.add_packed_uint64(11, unsigned_ints.begin(), unsigned_ints.end());
      else
        for (uint64_t v : unsigned_ints) w.add_uint64(11, v);
    };
    EXPECT_EQ(typed(DType::kF32, {2}, add_floats).to_f64(), (std::vector<double>{1.5, -2}));
    EXPECT_EQ(typed(DType::kC64, {1}, add_floats).bytes(), 8);
    EXPECT_EQ(typed(DType::kF64, {1, 2}, add_doubles).to_f64(), (std::vector<double>{1.25, -8}));
    EXPECT_EQ(typed(DType::kI64, {2}, add_ints).to_i64(), ints);
    EXPECT_EQ(typed(DType::kU32, {2}, add_unsigned).to_i64(), (std::vector<int64_t>{7, 0xffffffff}));
    EXPECT_EQ(typed(DType::kU64, {2}, add_unsigned).to_i64(), (std::vector<int64_t>{7, 0xffffffff}));
  }
}

TEST(TensorProto, AlignedBytesAreUsedInPlaceAndOthersCopied) {
  int borrowed = 0, copied = 0;
  for (int padding = 0; padding < 8; ++padding) {
    GraphText g;
    g.name = std::string(static_cast<size_t>(padding) + 1, 'g');
    g.initializers = {raw_tensor("w", DType::kF64, {2}, raw<double>({1, 2}))};
    const ImportedModel m = import_ok(model(g.bytes()));
    const Tensor& w = m.graph.value(0).constant;
    const MappedBytes& file = *m.files[0];
    const bool inside = w.view().data >= file.data && w.view().data < file.data + file.size;
    EXPECT_EQ(m.realigned_bytes, inside ? 0 : 16);
    EXPECT_EQ(m.weight_bytes, 16);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w.view().data) % 8, 0u);
    EXPECT_EQ(w.to_f64(), (std::vector<double>{1, 2}));
    (inside ? borrowed : copied) += 1;
  }
  EXPECT_EQ(borrowed, 1);
  EXPECT_EQ(copied, 7);
}

TEST(TensorProto, BytesOfAnySizeAreUsedInPlace) {
  for (DType type : {DType::kU8, DType::kI4, DType::kF8E5M2, DType::kU2}) {
    GraphText g;
    g.initializers = {raw_tensor("w", type, {8}, Bytes(static_cast<size_t>(dtype_bits(type)), 'x'))};
    const ImportedModel m = import_ok(model(g.bytes()));
    const std::byte* data = m.graph.value(0).constant.view().data;
    EXPECT_TRUE(data >= m.files[0]->data && data < m.files[0]->data + m.files[0]->size) << dtype_name(type);
  }
}

TEST(TensorProto, BoolsAreZeroOrOne) {
  EXPECT_EQ(bytes_of(read(raw_tensor("w", DType::kBool, {4}, Bytes("\x00\x01\x02\xff", 4)))),
            (std::vector<int>{0, 1, 1, 1}));
}

TEST(TensorProto, EmptyTensors) {
  EXPECT_EQ(read(tensor("w", DType::kF32, {0})).count(), 0);
  EXPECT_EQ(read(raw_tensor("w", DType::kF32, {0, 4, 1, 64}, "")).dims(), (std::vector<int64_t>{0, 4, 1, 64}));
  EXPECT_EQ(read(i64_tensor("w", {}, {5})).to_i64(), (std::vector<int64_t>{5}));
}

TEST(TensorProto, RefusesWrongSizes) {
  const auto refused = [](const Bytes& t, const Names& parts) { expect_refused(with_tensor(t), parts); };
  refused(raw_tensor("w", DType::kF32, {3, 4}, Bytes(20, 'x')), {"'w'", "float32 [3, 4]", "20", "48"});
  refused(raw_tensor("w", DType::kU4, {3}, Bytes(3, 'x')), {"'w'", "uint4 [3]", "3 bytes", "need 2"});
  refused(tensor("w", DType::kF32, {2}), {"'w'", "no data", "2"});
  refused(int32_tensor(DType::kI32, {2}, {1}, true), {"'w'", "int32_data", "1", "2"});
  refused(int32_tensor(DType::kI32, {1 << 20, 1 << 20}, {1}, true),
          {"'w'", "int32_data"});  // nothing of that size is allocated
  refused(int32_tensor(DType::kF32, {1}, {1}, true), {"'w'", "int32_data", "float_data"});
  refused(tensor("w", DType::kF32, {-1}), {"dims[0]", "-1"});
  refused(tensor("w", DType::kF32, {int64_t{1} << 62}), {"dims[0]"});
  refused(tensor("w", DType::kF32, {1 << 30, 1 << 30, 1 << 30}), {"'w'", "product"});
  refused(tensor("w", DType::kF32, {0, int64_t{1} << 40, int64_t{1} << 40}), {"'w'", "product"});
  refused(tensor("w", DType::kF32, {1, 1, 1, 1, 1, 1, 1, 1, 1}), {"rank"});
  refused(tensor("w", DType::kNone, {1}), {"'w'", "data_type 0"});
  refused(tensor("w", static_cast<DType>(28), {1}), {"'w'", "data_type 28"});
  refused(i64_tensor("", {1}, {1}), {"graph.initializer[0]", "no name"});
  Bytes both = raw_tensor("w", DType::kI64, {1}, Bytes(8, 'x'));
  protozero::pbf_writer(both).add_int64(7, 3);
  refused(both, {"'w'", "raw_data", "int64_data"});
  Bytes segment = tensor("w", DType::kI64, {0});
  protozero::pbf_writer(segment).add_message(3, Bytes());
  refused(segment, {"'w'", "segments"});
}

Bytes sparse(const Bytes& values, const Bytes& indices, const std::vector<int64_t>& dims) {
  Bytes t;
  protozero::pbf_writer w(t);
  w.add_message(1, values);
  w.add_message(2, indices);
  w.add_packed_int64(3, dims.begin(), dims.end());
  return t;
}

TEST(TensorProto, SparseTensorsBecomeDense) {
  const Bytes values = raw_tensor("w", DType::kF32, {2}, raw<float>({5, 6}));
  GraphText g;
  g.sparse_initializers = {sparse(values, i64_tensor("", {2}, {1, 4}), {2, 3})};
  ImportedModel m = import_ok(model(g.bytes()));
  EXPECT_EQ(m.graph.value(m.graph.find("w")).constant.to_f64(), (std::vector<double>{0, 5, 0, 0, 6, 0}));
  g.sparse_initializers = {sparse(values, i64_tensor("", {2, 2}, {0, 2, 1, 0}), {2, 3})};
  m = import_ok(model(g.bytes()));
  EXPECT_EQ(m.graph.value(m.graph.find("w")).constant.to_f64(), (std::vector<double>{0, 0, 5, 6, 0, 0}));
  g.sparse_initializers = {sparse(values, i64_tensor("", {2}, {1, 6}), {2, 3})};
  expect_refused(model(g.bytes()), {"entry 1", "outside"});
  g.sparse_initializers = {sparse(values, i64_tensor("", {2}, {1, 6}), {1 << 20, 1 << 20})};
  expect_refused(model(g.bytes()), {"'w'", "limit"});
  g.sparse_initializers = {sparse(values, i64_tensor("", {3}, {1, 6, 7}), {9})};
  expect_refused(model(g.bytes()), {"2 values"});
}

}  // namespace
}  // namespace situ::onnx::test
