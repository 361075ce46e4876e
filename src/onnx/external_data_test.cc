// Weights in files beside the model.
#include "onnx/external_names.h"
#include "onnx/test_model.h"

namespace situ::onnx::test {
namespace {

namespace fs = std::filesystem;

class ExternalData : public testing::Test {
 protected:
  Result<ImportedModel> import_with(const std::vector<std::pair<std::string, std::string>>& entries,
                                    const std::vector<int64_t>& dims = {2}) {
    GraphText g;
    g.initializers = {external_tensor("w", DType::kF32, dims, entries)};
    return import_onnx(folder_.write("model.onnx", model(g.bytes())));
  }
  TempFolder folder_;
};

TEST_F(ExternalData, IsMappedOnceAndUsedInPlace) {
  folder_.write("weights.bin", raw<float>({0, 1, 2, 3, 4, 5}));
  GraphText g;
  g.initializers = {
      external_tensor("a", DType::kF32, {2}, {{"location", "weights.bin"}, {"offset", "8"}, {"length", "8"}}),
      external_tensor("b", DType::kF32, {1}, {{"location", "./weights.bin"}, {"offset", "4"}, {"checksum", "x"}})};
  // Constant nodes may be stored outside, too; an odd offset makes a copy.
  g.nodes = {node("Constant", {}, {"c"},
                  {tensor_attribute(
                      "value", external_tensor("", DType::kU8, {3}, {{"location", "weights.bin"}, {"offset", "1"}}))}),
             node("Constant", {}, {"d"},
                  {tensor_attribute("value", external_tensor("", DType::kF32, {3},
                                                             {{"location", "weights.bin"}, {"offset", "2"}}))})};
  const Result<ImportedModel> m = import_onnx(folder_.write("model.onnx", model(g.bytes())));
  ASSERT_TRUE(m.is_ok()) << m.status().message();
  ASSERT_EQ(m->files.size(), 2u);
  const auto data = [&](const char* name) { return m->graph.value(m->graph.find(name)).constant.view().data; };
  EXPECT_EQ(data("a"), m->files[1]->data + 8);
  EXPECT_EQ(data("b"), m->files[1]->data + 4);
  EXPECT_EQ(data("c"), m->files[1]->data + 1);
  EXPECT_EQ(m->realigned_bytes, 12);
  EXPECT_EQ(m->graph.value(m->graph.find("a")).constant.to_f64(), (std::vector<double>{2, 3}));
}

TEST_F(ExternalData, MapOutlivesTheModel) {
  folder_.write("weights.bin", raw<float>({8, 9}));
  Tensor kept;
  {
    const Result<ImportedModel> m = import_with({{"location", "weights.bin"}});
    ASSERT_TRUE(m.is_ok()) << m.status().message();
    kept = m->graph.value(0).constant;
  }
  EXPECT_EQ(kept.to_f64(), (std::vector<double>{8, 9}));
}

TEST_F(ExternalData, RefusesRangesOutsideOfTheFile) {
  folder_.write("w", raw<float>({8, 9}));
  expect_refused(import_with({{"location", "w"}, {"offset", "4"}}), {"'w'", "offset 4", "8 bytes"});
  expect_refused(import_with({{"location", "w"}, {"offset", "9223372036854775807"}}), {"'w'", "past the end"});
  expect_refused(import_with({{"location", "w"}, {"offset", "9223372036854775808"}}), {"offset", "not a byte count"});
  expect_refused(import_with({{"location", "w"}, {"offset", "-4"}}), {"offset '-4'"});
  expect_refused(import_with({{"location", "w"}, {"offset", "0x0"}}), {"offset '0x0'"});
  expect_refused(import_with({{"location", "w"}, {"length", "4"}}), {"length 4", "need 8"});
  expect_refused(import_with({{"location", "w"}, {"length", "999999"}}, {1 << 30}), {"length 999999"});
  expect_refused(import_with({{"location", "w"}}, {1 << 30}), {"past the end"});
  folder_.write("w", "");
  expect_refused(import_with({{"location", "w"}}), {"past the end", "(0 bytes)"});
  EXPECT_TRUE(import_with({{"location", "w"}}, {0}).is_ok());
}

TEST_F(ExternalData, RefusesPathsOutsideOfTheFolder) {
  const TempFolder elsewhere;
  const fs::path secret = elsewhere.write("secret", raw<float>({1, 2}));
  fs::create_directory(folder_.path() / "sub");
  folder_.write("sub/w", raw<float>({1, 2}));
  EXPECT_TRUE(import_with({{"location", "sub/w"}}).is_ok());
  expect_refused(import_with({{"location", secret.string()}}), {"'w'", "absolute"});
  const std::string here = folder_.path().filename().string(), there = elsewhere.path().filename().string();
  for (const std::string& climbs : {"../" + there + "/secret", "../" + here + "/sub/w", "sub/../../" + here + "/sub/w",
                                    std::string("./../w"), std::string("..")})
    expect_refused(import_with({{"location", climbs}}), {"'" + climbs + "'", "climbs out of the model's folder"});
  expect_refused(import_with({{"location", std::string("sub/w\0x", 7)}}), {"NUL"});
  expect_refused(import_with({}), {"'w'", "without a location"});
  expect_refused(import_with({{"location", "."}}), {"not a regular file"});
  expect_refused(import_with({{"location", "missing"}}), {"'w'", "'missing'", "does not exist"});
  fs::create_symlink(secret, folder_.path() / "link");
  expect_refused(import_with({{"location", "link"}}), {"outside of the model's folder"});
  fs::create_directory_symlink(elsewhere.path(), folder_.path() / "folder");
  expect_refused(import_with({{"location", "folder/secret"}}), {"outside of the model's folder"});
  // The way of a link's target, although the names stay inside: to the folder above, and back from there.
  expect_refused(import_with({{"location", "folder/../" + there + "/secret"}}), {"outside of the model's folder"});
  expect_refused(import_with({{"location", "folder/../" + here + "/sub/w"}}), {"outside of the model's folder"});
  fs::create_symlink("sub/w", folder_.path() / "inside");
  EXPECT_TRUE(import_with({{"location", "inside"}}).is_ok());
}

TEST_F(ExternalData, MayGoUpInsideOfTheFolder) {
  fs::create_directories(folder_.path() / "data/deep");
  folder_.write("w.bin", raw<float>({3, 4}));
  folder_.write("data/v.bin", raw<float>({5, 6}));
  fs::create_directory_symlink("data/deep", folder_.path() / "link");
  const std::vector<std::pair<const char*, std::vector<double>>> cases{
      {"data/../w.bin", {3, 4}},      {"./data/./../w.bin", {3, 4}},  {"data/deep/../../w.bin", {3, 4}},
      {"data/deep/../v.bin", {5, 6}}, {"data/../data/v.bin", {5, 6}}, {"link/../v.bin", {5, 6}}};
  for (const auto& [location, numbers] : cases) {
    const Result<ImportedModel> m = import_with({{"location", location}});
    ASSERT_TRUE(m.is_ok()) << location << ": " << m.status().message();
    EXPECT_EQ(m->graph.value(m->graph.find("w")).constant.to_f64(), numbers) << location;
  }
  expect_refused(import_with({{"location", "data/.."}}), {"not a regular file"});
}

TEST_F(ExternalData, LinksIntoTheFolderOfTheLinkedModel) {
  // The Hugging Face cache: snapshots/1/model.onnx -> blobs/aa, snapshots/1/w -> blobs/bb.
  fs::create_directories(folder_.path() / "blobs");
  fs::create_directories(folder_.path() / "snapshots/1");
  folder_.write("blobs/bb", raw<float>({1, 2}));
  GraphText g;
  g.initializers = {external_tensor("w", DType::kF32, {2}, {{"location", "w"}})};
  folder_.write("blobs/aa", model(g.bytes()));
  const fs::path snapshot = folder_.path() / "snapshots/1";
  fs::create_symlink("../../blobs/aa", snapshot / "model.onnx");
  fs::create_symlink("../../blobs/bb", snapshot / "w");
  const Result<ImportedModel> m = import_onnx(snapshot / "model.onnx");
  EXPECT_TRUE(m.is_ok()) << m.status().message();
}

TEST_F(ExternalData, LinksOfASnapshotLeadAnywhereBelowItsCache) {
  // CACHE/models--a--b/snapshots/COMMIT/w -> CACHE/models--a--b/blobs/bb -> CACHE/blobs/cc/digest, and below a folder.
  const fs::path cache = folder_.path() / "cache", repository = cache / "models--a--b", other = cache / "elsewhere/b",
                 snapshot = repository / "snapshots/1", inner = snapshot / "onnx";
  for (const fs::path& f : {cache / "blobs/cc", repository / "blobs", inner, other / "snapshots/1"})
    fs::create_directories(f);
  folder_.write("cache/blobs/cc/digest", raw<float>({1, 2}));
  folder_.write("outside", raw<float>({1, 2}));
  GraphText g;
  g.initializers = {external_tensor("w", DType::kF32, {2}, {{"location", "w"}})};
  folder_.write("cache/models--a--b/blobs/aa", model(g.bytes()));
  folder_.write("cache/elsewhere/b/snapshots/1/model.onnx", model(g.bytes()));
  fs::create_symlink("../../blobs/cc/digest", repository / "blobs/bb");
  for (const fs::path& at : {snapshot, inner}) {
    fs::create_symlink(repository / "blobs/aa", at / "model.onnx");
    fs::create_symlink(repository / "blobs/bb", at / "w");
    const Result<ImportedModel> m = import_onnx(at / "model.onnx");
    EXPECT_TRUE(m.is_ok()) << m.status().message();
    fs::remove(at / "w");
    fs::create_symlink(folder_.path() / "outside", at / "w");
    expect_refused(import_onnx(at / "model.onnx"), {"'w'", "outside of the model's folder"});
  }
  // A folder that only ends like a snapshot has no cache.
  fs::create_symlink(cache / "blobs/cc/digest", other / "snapshots/1/w");
  expect_refused(import_onnx(other / "snapshots/1/model.onnx"), {"'w'", "outside of the model's folder"});
}

TEST_F(ExternalData, NamesAreReadWithoutTheFiles) {
  GraphText g;
  g.initializers = {external_tensor("a", DType::kF32, {2}, {{"location", "model.onnx_data"}, {"offset", "8"}}),
                    external_tensor("b", DType::kF32, {2}, {{"length", "8"}, {"location", "../b"}})};
  g.nodes = {node("Constant", {}, {"c"},
                  {tensor_attribute("value", external_tensor("", DType::kU8, {3}, {{"location", "c/d"}}))})};
  const Result<std::set<std::string>> names = external_names(folder_.write("model.onnx", model(g.bytes())));
  ASSERT_TRUE(names.is_ok()) << names.status().message();
  EXPECT_EQ(*names, (std::set<std::string>{"../b", "c/d", "model.onnx_data"}));
  const Result<std::set<std::string>> none = external_names(folder_.write("bad.onnx", "no model at all"));
  ASSERT_FALSE(none.is_ok());
  EXPECT_NE(none.status().message().find("bad.onnx"), std::string::npos);
}

}  // namespace
}  // namespace situ::onnx::test
