// Which files of a repository are chosen: the layouts of real repositories, by their names and sizes.
#include "pipelines/model_folder_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace situ {
namespace {

const std::map<std::string, std::string> kConfigs{
    {"text", R"({"architectures": ["LlamaForCausalLM"]})"},
    {"embed", R"({"architectures": ["BertModel"]})"},
    {"rank", R"({"architectures": ["XLMRobertaForSequenceClassification"]})"},
    {"pair", R"({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": true})"},
    {"none", ""}};

struct Layout {
  const char *name, *kind;
  // Parts between ';': "onnx/model fp32=90+2270 q4=30" is onnx/model.onnx of 90 MB with 2,270 MB in
  // onnx/model.onnx_data, and onnx/model_q4.onnx; "8=" is quantized, int8 and uint8; "=" without a word before is a
  // file as it is called; "unit FOLDER" is a folder of onnxruntime-genai's builder, "unit FOLDER PROVIDER" with a
  // provider.
  const char* files;
  const char* expected;     // a label, or "!" and a part of the refusal
  const char* graphs = "";  // that are opened, of those that choose for themselves
};

void add_precisions(const std::string& stem, std::istringstream& words, FolderListing* listing) {
  for (std::string word; words >> word;) {
    const size_t equals = word.find('='), plus = word.find('+');
    const std::string precision = word.substr(0, equals);
    std::vector<std::string> names{precision};
    if (precision == "8") names = {"quantized", "int8", "uint8"};
    const auto bytes = [](const std::string& megabytes) { return static_cast<int64_t>(std::stod(megabytes) * 1e6); };
    for (const std::string& name : names) {
      const std::string file = stem + (name == "fp32" ? "" : "_" + name) + ".onnx";
      listing->files.push_back({file, bytes(word.substr(equals + 1))});
      if (plus != std::string::npos) listing->files.push_back({file + "_data", bytes(word.substr(plus + 1))});
    }
  }
}

FolderListing listing_of(const Layout& layout) {
  FolderListing listing;
  listing.name = layout.name;
  listing.processor = {"qint8_avx512_vnni", "qint8_avx512", "quint8_avx2"};
  listing.files = {{"config.json", 600}, {"tokenizer.json", 3'000'000}, {"README.md", 9000}};
  if (const std::string& config = kConfigs.at(layout.kind); !config.empty()) listing.texts["config.json"] = config;
  std::istringstream parts(layout.files);
  for (std::string part; std::getline(parts, part, ';');) {
    std::istringstream words(part);
    std::string stem;
    words >> stem;
    if (stem == "unit") {
      std::string folder, provider;
      words >> folder >> provider;
      const std::string at = folder == "." ? "" : folder + "/";
      listing.files.push_back({at + "genai_config.json", 1500});
      listing.texts[at + "genai_config.json"] =
          R"({"model": {"decoder": {"filename": "model.onnx", "session_options": {"provider_options": [)" +
          (provider.empty() ? "" : R"({")" + provider + R"(": {}})") + "]}}}}";
      listing.files.push_back({at + "model.onnx", 52'000'000});
      listing.files.push_back({at + "model.onnx.data", 2'700'000'000});
    } else if (const size_t equals = stem.find('='); equals != std::string::npos) {
      listing.files.push_back({stem.substr(0, equals), static_cast<int64_t>(std::stod(stem.substr(equals + 1)) * 1e6)});
    } else {
      add_precisions(stem, words, &listing);
    }
  }
  return listing;
}

// From pages of the hub, 2024 to 2026; sizes that a page did not show are what the others make likely.
const Layout kLayouts[] = {
    // Decoders below onnx/.
    {"onnx-community/Llama-3.2-1B-Instruct", "text",
     "onnx/model fp32=0.5+4940 fp16=0.5+2470 q4=1660 q4f16=1070 bnb4=1600 8=1240", "q4"},
    {"onnx-community/Llama-3.2-3B-Instruct", "text",
     "onnx/model fp32=1+12850 fp16=1+6430 q4=0.95+3340 q4f16=1+2370 bnb4=1+3100 8=1+3210", "q4"},
    {"onnx-community/Llama-3.2-1B-Instruct-q4f16", "text", "genai_config.json=0.001;onnx/model q4f16=27.8+1210",
     "q4f16"},
    {"onnx-community/Qwen2.5-0.5B-Instruct", "text", "onnx/model fp32=1990 fp16=995 q4=786 q4f16=483 bnb4=740 8=512",
     "q4"},
    {"onnx-community/Qwen2.5-1.5B-Instruct", "text",
     "onnx/model fp32=1+6170 fp16=1+3090 q4=1790 q4f16=1220 bnb4=1700 8=1580", "q4"},
    {"onnx-community/Qwen2.5-Coder-3B-Instruct", "text", "onnx/model q4=1100+2090 bnb4=905+2090 q4f16=271+2090", "q4"},
    {"onnx-community/DeepSeek-R1-Distill-Qwen-1.5B-ONNX", "text",
     "onnx/model fp32=1+7110 fp16=1510+2090 q4=1970 q4f16=1370 bnb4=1800 8=1790", "q4"},
    {"HuggingFaceTB/SmolLM2-1.7B-Instruct", "text",
     "onnx/model fp32=1+6850 fp16=1300+2100 q4=1410 q4f16=1110 bnb4=1300 8=1720;model.safetensors=3420", "q4"},
    {"HuggingFaceTB/SmolLM2-360M-Instruct", "text", "onnx/model fp32=1640 fp16=819 q4=417 q4f16=299", "q4"},
    {"onnx-community/LFM2-1.2B-Tool-ONNX", "text",
     "onnx/model fp32=0.3+4680 fp16=0.3+2340 q4=0.3+1220 q4f16=0.3+868 quantized=0.3+1300;onnx/model.onnx_data_1=100",
     "q4"},
    {"onnx-community/LFM2-2.6B-ONNX", "text",
     "onnx/model fp32=0.3+2090 fp16=0.3+2090 "
     "q4=0.3+2090;onnx/model.onnx_data_1=2090;onnx/model.onnx_data_2=2090;onnx/model.onnx_data_3=2090;onnx/"
     "model.onnx_data_4=2090;onnx/model_fp16.onnx_data_1=2090;onnx/model_fp16.onnx_data_2=1000",
     "q4"},
    {"onnx-community/granite-3.0-2b-instruct", "text",
     "onnx/model fp32=1+10100 fp16=1+5060 q4=1930 q4f16=1570 bnb4=1800 8=6+2530", "q4"},
    {"onnx-community/Phi-4-mini-instruct-web-q4f16", "text",
     "onnx/model q4f16=0.3+1990;onnx/model_q4f16.onnx_data_1=1420", "q4f16"},
    {"onnx-community/gpt2-ONNX", "text", "onnx/model fp32=498 fp16=249 q4=498 q4f16=249 bnb4=498 8=280", "quantized"},
    {"onnx-community/gpt2-xl-ONNX", "text", "onnx/model fp32=0.5+6230 q4=0.5+6230 int8=1880", "int8"},
    {"onnx-community/gemma-3-1b-it-ONNX", "text", "", "!no .onnx file"},
    {"openai-community/gpt2", "text",
     "onnx/decoder_model fp32=654;onnx/decoder_with_past_model fp32=654;onnx/decoder_model_merged "
     "fp32=655;model.safetensors=548",
     "fp32", "onnx/decoder_model_merged.onnx"},
    // Folders of onnxruntime-genai's builder.
    {"microsoft/Phi-3-mini-4k-instruct-onnx", "text",
     "unit cpu_and_mobile/cpu-int4-rtn-block-32;unit cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4;unit "
     "cuda/cuda-int4-rtn-block-32 cuda;unit directml/directml-int4-awq-block-128 dml",
     "cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4"},
    {"microsoft/Phi-3-mini-128k-instruct-onnx", "text",
     "unit cpu_and_mobile/cpu-int4-awq-block-128;unit cpu_and_mobile/cpu-int4-rtn-block-32;unit "
     "cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4",
     "cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4"},
    {"microsoft/Phi-3.5-mini-instruct-onnx", "text",
     "unit cpu_and_mobile/cpu-int4-awq-block-128-acc-level-4;unit cuda/cuda-int4-awq-block-128",
     "cpu_and_mobile/cpu-int4-awq-block-128-acc-level-4"},
    {"microsoft/Phi-4-mini-instruct-onnx", "text",
     "unit cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4;unit gpu/gpu-int4-rtn-block-32",
     "cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4"},
    {"microsoft/phi-4-onnx", "text", "unit cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4",
     "cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4"},
    {"microsoft/Phi-3.5-vision-instruct-onnx", "text",
     "unit cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4;onnx/image_embedding_phi3_v_for_onnx.py=0.1",
     "cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4"},
    {"microsoft/Phi-4-multimodal-instruct-onnx", "text", "unit gpu/gpu-int4-rtn-block-32;onnx/builder.py=0.1",
     "!none is for a CPU"},
    {"onnxruntime/DeepSeek-R1-Distill-ONNX", "none",
     "unit deepseek-r1-distill-qwen-1.5B/cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4;unit "
     "deepseek-r1-distill-qwen-7B/cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4;unit "
     "deepseek-r1-distill-qwen-14B/cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4;unit "
     "deepseek-r1-distill-qwen-1.5B/gpu/gpu-int4-rtn-block-32",
     "!which folder"},
    {"onnxruntime/gpt-oss-20b-onnx", "text", "unit cpu_and_mobile/model;unit cuda/model", "cpu_and_mobile/model"},
    {"llmware/gemma-2b-it-onnx", "text", "unit .", ""},
    {"EmbeddedLLM/gemma-2b-it-int4-onnx-directml", "text", "unit . dml", "!none is for a CPU"},
    {"amd/DeepSeek-R1-Distill-Qwen-7B-awq-asym-uint4-g128-lmhead-onnx-hybrid", "none", "unit .;model.pb.bin=8370",
     "!none is for a CPU"},
    {"amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx", "text", "unit .", ""},
    {"Microsoft/models", "none",
     "unit qwen2.5-coder-7b-instruct-generic-cpu-4/v2;unit qwen2.5-coder-7b-instruct-generic-cpu-4/v4",
     "qwen2.5-coder-7b-instruct-generic-cpu-4/v4"},
    // Encoder-decoders, speech.
    {"Xenova/t5-small", "pair",
     "onnx/encoder_model fp32=141 fp16=70.8 quantized=35.6;onnx/decoder_model_merged fp32=167 fp16=83.7 "
     "quantized=42.4;onnx/decoder_model fp32=160 fp16=80 quantized=41;onnx/decoder_with_past_model fp32=150 fp16=75 "
     "quantized=39",
     "quantized", "onnx/decoder_model_merged_quantized.onnx"},
    {"Xenova/opus-mt-en-de", "pair",
     "onnx/encoder_model fp32=196 fp16=98 quantized=49.4;onnx/decoder_model_merged fp32=222 fp16=111 quantized=56.7",
     "quantized"},
    {"Xenova/nllb-200-distilled-600M", "pair",
     "onnx/encoder_model fp32=1660 fp16=829 quantized=419;onnx/decoder_model_merged fp32=1870 fp16=933 quantized=476",
     "quantized"},
    {"Xenova/m2m100_418M", "pair",
     "onnx/encoder_model fp32=1130 fp16=567 quantized=288;onnx/decoder_model_merged fp32=1340 fp16=671 quantized=344",
     "quantized"},
    {"Xenova/mt5-base", "pair",
     "onnx/encoder_model fp32=1110 quantized=278;onnx/decoder_model_merged fp32=1990 fp16=996 quantized=501",
     "quantized"},
    {"Xenova/whisper-tiny", "pair",
     "onnx/encoder_model fp32=32.9 quantized=10.1;onnx/decoder_model_merged fp32=119 quantized=30.7", "quantized"},
    {"Xenova/nb-whisper-tiny-beta", "pair",
     "onnx/encoder_model fp32=32.9 fp16=16.5 q4=9 q4f16=6 bnb4=8 8=10.1;onnx/decoder_model_merged fp32=119 fp16=59.6 "
     "q4=86.7 q4f16=46 bnb4=86.2 8=30.7",
     "quantized"},
    {"onnx-community/whisper-base", "pair",
     "onnx/encoder_model fp32=82.5 q4f16=15 quantized=23.2;onnx/decoder_model_merged fp32=208 fp16=105 quantized=53.7",
     "quantized"},
    {"onnx-internal-testing/tiny-random-WhisperForConditionalGeneration-ONNX_external", "pair",
     "onnx/encoder_model fp32=0.1;onnx/decoder_model_merged fp32=0.1+1 q4=0.1+1", "fp32"},
    {"soniqo/Whisper-Large-v3-Turbo-ONNX", "pair",
     "turbo-encoder.int8.onnx=643;turbo-encoder.fp16.onnx=1;turbo-encoder.fp16.onnx.data=1240;turbo-encoder.onnx=1;"
     "turbo-encoder.weights=2480",
     "!which of these should run"},
    {"onnx-community/moonshine-base-ONNX", "pair",
     "onnx/encoder_model fp32=80.8 quantized=20.5;onnx/decoder_model_merged fp32=166 quantized=42.5 uint8=42.5 "
     "q4f16=40",
     "quantized"},
    {"UsefulSensors/moonshine", "none",
     "onnx/merged/base/float/encoder_model fp32=80.8;onnx/merged/base/float/decoder_model_merged "
     "fp32=166;onnx/merged/base/quantized/encoder_model fp32=20.5;onnx/merged/base/quantized/decoder_model_merged "
     "fp32=42.5;onnx/merged/tiny/float/encoder_model fp32=30;onnx/merged/tiny/float/decoder_model_merged fp32=80",
     "!which folder"},
    // Pictures and sounds.
    {"HuggingFaceTB/SmolVLM-256M-Instruct", "text",
     "onnx/decoder_model_merged fp32=540 fp16=271 q4=86.9 q4f16=80 bnb4=80 8=138;onnx/embed_tokens fp32=114 fp16=57 "
     "q4=114 bnb4=114 8=28;onnx/vision_encoder fp32=374 fp16=187 q4=67 8=94",
     "q4", "onnx/embed_tokens_quantized.onnx onnx/vision_encoder.onnx"},
    {"HuggingFaceTB/SmolVLM-Instruct", "text",
     "onnx/decoder_model_merged fp32=1+6850 fp16=1+3430 q4=1070 q4f16=965 8=1720;onnx/embed_tokens fp32=403 "
     "fp16=201;onnx/vision_encoder fp32=1740 fp16=870",
     "q4", "onnx/embed_tokens_fp16.onnx onnx/vision_encoder_fp16.onnx"},
    {"Xenova/nanoLLaVA", "text",
     "onnx/decoder_model_merged fp32=1860 fp16=930 q4=308 q4f16=270 8=470;onnx/embed_tokens fp32=622 fp16=311 q4=622 "
     "8=156;onnx/vision_encoder fp32=1700 q4=270",
     "q4", "onnx/embed_tokens_quantized.onnx"},
    {"llava-hf/llava-onevision-qwen2-0.5b-ov-hf", "text",
     "onnx/decoder_model_merged fp32=1980 fp16=990 q4=327 q4f16=290 8=500;onnx/embed_tokens "
     "fp32=545;onnx/vision_encoder fp32=1600 fp16=800",
     "q4", "onnx/embed_tokens.onnx"},
    {"onnx-community/Qwen2-VL-2B-Instruct", "text", "", "!no .onnx file"},
    {"pdufour/Qwen2-VL-2B-Instruct-ONNX-Q4-F16", "text",
     "onnx/QwenVL_A fp32=1+2600 q4f16=300;onnx/QwenVL_B fp32=1 q4f16=1;onnx/QwenVL_E fp32=1+12300 q4f16=900",
     "!which of these should run"},
    {"NSTiwari/gemma3-onnx", "text",
     "onnx/decoder_model_merged fp32=1+15500 fp16=1+7760;onnx/embed_tokens fp32=1+2600;onnx/vision_encoder fp32=1+1700",
     "fp16", "onnx/vision_encoder.onnx"},
    {"onnx-community/gemma-4-E2B-it-ONNX", "text",
     "onnx/decoder_model_merged fp32=1+9000 fp16=1+4500 q4=1+1500 q4f16=1+1300 quantized=1+2300;onnx/embed_tokens "
     "fp32=1+9000 q4=1+1600;onnx/audio_encoder fp32=1+1200 fp16=1+600",
     "q4", "onnx/audio_encoder_fp16.onnx"},
    {"soniqo/gemma-4-E4B-it-ONNX", "text",
     "onnx/decoder_model_merged q4=1+2090;onnx/decoder_model_merged_q4.onnx_data_1=1290;onnx/embed_tokens "
     "q4=1+1840;onnx/embed_tokens_q4.onnx_data_1=396",
     "q4"},
    {"onnx-community/gemma-3n-E2B-it-ONNX", "text", "onnx/audio_encoder quantized=686",
     "!is missing beside audio_encoder"},
    {"onnx-community/Qwen3.5-2B-ONNX", "text",
     "onnx/decoder_model_merged fp32=1+7500 fp16=1+3700 q4=1+1200 q4f16=1+1000 quantized=1+2000;onnx/embed_tokens "
     "fp32=1+2000 fp16=1+1000 q4=1+300;onnx/vision_encoder fp32=1+1300 fp16=1+600",
     "q4"},
    {"onnx-community/Florence-2-large-ft", "pair",
     "onnx/decoder_model_merged fp32=800;onnx/decoder_model fp32=800;onnx/decoder_with_past_model "
     "fp32=700;onnx/encoder_model fp32=600;onnx/embed_tokens fp32=200;onnx/vision_encoder fp32=1400",
     "!Florence-2"},
    // Embeddings.
    {"sentence-transformers/all-MiniLM-L6-v2", "embed",
     "modules.json=0.001;onnx/model fp32=90.4 O1=90.3 O2=90.3 O3=90.3 O4=45 qint8_arm64=23 qint8_avx512=23 "
     "qint8_avx512_vnni=23 quint8_avx2=23;openvino/openvino_model.bin=90",
     "qint8_avx512_vnni"},
    {"Xenova/all-MiniLM-L6-v2", "embed", "onnx/model fp32=90.4 fp16=45.3 int8=23 quantized=23", "quantized"},
    {"Xenova/bge-small-en-v1.5", "embed", "onnx/model fp32=133 fp16=66.7 quantized=34", "quantized"},
    {"Xenova/multilingual-e5-small", "embed", "onnx/model fp32=470 fp16=235 quantized=118", "quantized"},
    {"Xenova/e5-small-v2", "embed", "onnx/model fp32=133 fp16=66.7 q4=61.5 q4f16=36.2 bnb4=60 8=34", "quantized"},
    {"Alibaba-NLP/gte-modernbert-base", "embed",
     "onnx/model fp32=596 fp16=298 q4=224 q4f16=140 bnb4=220 8=150;pytorch_model.bin=596", "quantized"},
    {"BAAI/bge-m3", "embed", "onnx/model fp32=0.7+2270;onnx/Constant_7_attr__value=0.065", "fp32"},
    {"philipp-zettl/BAAI-bge-m3-ONNX", "embed", "decoder_model_merged.onnx=0.6;model.onnx_data=2270", "fp32"},
    {"Xenova/nomic-embed-text-v1", "embed", "onnx/model fp32=548 fp16=274 quantized=138", "quantized"},
    {"mixedbread-ai/mxbai-embed-large-v1", "embed", "onnx/model fp32=1340 fp16=669 quantized=337;gguf/model.gguf=300",
     "quantized"},
    {"Xenova/jina-embeddings-v2-small-en", "embed", "onnx/model fp32=130 fp16=65 q4=73.2 q4f16=40 bnb4=72 8=32.7",
     "quantized"},
    {"onnx-community/embeddinggemma-300m-ONNX", "embed", "onnx/model fp32=0.5+1230 quantized=0.6+309 q4=0.5+197",
     "quantized"},
    {"Qdrant/Qwen3-Embedding-0.6B-onnx", "embed", "model fp32=1+2380 quantized=1+600", "quantized"},
    {"qdrant/bge-small-en-v1.5-onnx-q", "embed", "model_optimized.onnx=66.5", "optimized"},
    // Cross-encoders.
    {"jinaai/jina-reranker-v2-base-multilingual", "rank", "onnx/model fp32=1110 fp16=557 q4=827 bnb4=822 8=280",
     "quantized"},
    {"onnx-community/gte-multilingual-reranker-base", "rank",
     "onnx/model fp32=1260 fp16=630 q4=876 q4f16=466 bnb4=870 8=341", "quantized"},
    {"Xenova/bge-reranker-base", "rank", "onnx/model fp32=1110 fp16=556 quantized=279", "quantized"},
    {"cross-encoder/ms-marco-MiniLM-L2-v2", "rank",
     "onnx/model fp32=62.5 O1=62.4 O2=62.4 O3=62.4 O4=31.3 qint8_arm64=15.8 qint8_avx512=15.8 qint8_avx512_vnni=15.8 "
     "quint8_avx2=15.8",
     "qint8_avx512_vnni"},
    {"BGLAW/bge-reranker-v2-m3-onnx-defaulttask", "rank", "onnx/model fp32=0.657 q4=1250 bnb4=1240 8=571", "quantized"},
    {"arnauld-a/bge-reranker-v2-m3-onnx-quant", "rank", "model.onnx=1140;model.onnx.data=2270;model_quant.onnx=880",
     "fp32"},
    {"onnx-community/Qwen3-Reranker-0.6B-ONNX", "text", "onnx/model quantized=600 q4=900", "q4"},
    {"nynefold/Qwen3-Reranker-0.6B-ONNX", "text",
     "reranker.int8.onnx=600;reranker.int4.onnx=400;reranker.fp16.onnx=1190", "!which of these should run"},
};

TEST(ModelFolderChoice, LayoutsOfRealRepositories) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    const Result<FolderChoice> choice = choose_model(listing_of(layout), "", {});
    const std::string expected = layout.expected;
    if (expected.starts_with('!')) {
      ASSERT_FALSE(choice.is_ok()) << choice->label;
      EXPECT_NE(choice.status().message().find(expected.substr(1)), std::string::npos) << choice.status().message();
      continue;
    }
    if (!choice.is_ok()) {
      ADD_FAILURE() << choice.status().message();
      continue;
    }
    EXPECT_EQ(choice->label, expected);
    std::istringstream graphs(layout.graphs);
    for (std::string graph; graphs >> graph;)
      EXPECT_NE(std::find(choice->graphs.begin(), choice->graphs.end(), graph), choice->graphs.end()) << graph;
  }
}

std::vector<std::string> advice_of(const Status& status) {
  std::vector<std::string> all;
  for (const Reason& r : status.reasons()) all.push_back(r.advice);
  return all;
}

TEST(ModelFolderChoice, AVariantIsASuffixThenAFolderThenAGraph) {
  const FolderListing listing =
      listing_of({"a/b", "text",
                  "onnx/model fp32=100 fp16=50 q4=30;unit q4;unit cpu/x;unit cpu/y;unit gpu/z;"
                  "other/model_O2.onnx=3",
                  ""});
  const auto label = [&](const std::string& variant) {
    const Result<FolderChoice> choice = choose_model(listing, variant, {});
    return choice.is_ok() ? choice->graphs[0] + " in '" + choice->folder + "' " + choice->file
                          : choice.status().message();
  };
  EXPECT_EQ(label("q4"), "onnx/model_q4.onnx in '' ");
  EXPECT_EQ(label("fp32"), "onnx/model.onnx in '' ");
  EXPECT_EQ(label("cpu/y"), "cpu/y/model.onnx in 'cpu/y' ");
  EXPECT_EQ(label("gpu"), "a/b: which folder should run? All in 'gpu' are for other devices");
  EXPECT_EQ(label("gpu/z"), "gpu/z/model.onnx in 'gpu/z' ");
  EXPECT_EQ(label("other"), "other/model_O2.onnx in 'other' ");
  EXPECT_EQ(label("other/model_O2.onnx"), "other/model_O2.onnx in 'other' ");
  const Status several = choose_model(listing, "cpu", {}).status();
  EXPECT_EQ(several.code(), Code::kInvalidArgument);
  EXPECT_EQ(advice_of(several), (std::vector<std::string>{"a/b:cpu/x", "a/b:cpu/y"}));
  const Status none = choose_model(listing, "q5", {}).status();
  EXPECT_EQ(none.code(), Code::kInvalidArgument);
  const std::vector<std::string> advice = advice_of(none);
  for (const char* name : {"a/b:fp16", "a/b:fp32", "a/b:q4", "a/b:cpu/x"})
    EXPECT_EQ(std::count(advice.begin(), advice.end(), name), 1) << name;
}

TEST(ModelFolderChoice, ListsOfVariants) {
  const Layout pair{
      "a/b", "pair",
      "onnx/encoder_model fp32=100 fp16=50 quantized=25;onnx/decoder_model_merged fp32=100 quantized=25 q4=20", ""};
  const FolderListing listing = listing_of(pair);
  const auto graphs = [&](const std::vector<std::string>& wanted) {
    const Result<FolderChoice> choice = choose_model(listing, "", wanted);
    return choice.is_ok() ? choice->variants : std::vector<std::string>{choice.status().message()};
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(graphs({}), (List{"encoder_model=quantized", "decoder_model_merged=quantized"}));
  EXPECT_EQ(graphs({"fp32"}), (List{"encoder_model=fp32", "decoder_model_merged=fp32"}));
  EXPECT_EQ(graphs({"quantized", "encoder_model=fp16"}),
            (List{"encoder_model=fp16", "decoder_model_merged=quantized"}));
  EXPECT_EQ(graphs({"encoder_model=fp16"}), (List{"encoder_model=fp16", "decoder_model_merged=quantized"}));
  EXPECT_EQ(graphs({"fp16"}), (List{"a/b: decoder_model_merged has no variant 'fp16'; there is fp32, q4, quantized"}));
  EXPECT_EQ(choose_model(listing, "q4", {"fp32"}).status().message(),
            "a/b:q4: the name and --variant both say which precision to run");
  // Half a set is named.
  const Status half =
      choose_model(
          listing_of({"a/b", "pair", "onnx/encoder_model fp32=100;onnx/decoder_model_merged fp32=9 fp16=5", ""}),
          "fp16", {})
          .status();
  EXPECT_EQ(half.message(), "a/b: encoder_model has no variant 'fp16'; there is fp32");
}

TEST(ModelFolderChoice, WhatIsNotChosenIsTold) {
  const Result<FolderChoice> choice =
      choose_model(listing_of({"a/b", "text", "onnx/model fp32=100 fp16=50 q4=20+5", ""}), "", {});
  ASSERT_TRUE(choice.is_ok()) << choice.status().message();
  EXPECT_EQ(choice->label, "q4");
  std::vector<std::pair<std::string, int64_t>> others;
  for (const FolderChoice::Other& o : choice->others) others.emplace_back(o.label, o.bytes);
  EXPECT_EQ(others, (std::vector<std::pair<std::string, int64_t>>{{"fp32", 100'000'000}, {"fp16", 50'000'000}}));
}

TEST(ModelFolderChoice, RepositoriesWithoutGraphsSayWhatMakesOne) {
  const auto message = [](const char* files) {
    return choose_model(listing_of({"a/b", "text", files, ""}), "", {}).status().message();
  };
  EXPECT_NE(message("model.safetensors=100").find("optimum-cli export onnx --model a/b"), std::string::npos);
  EXPECT_NE(message("model-Q4_K_M.gguf=100").find("GGUF"), std::string::npos);
}

}  // namespace
}  // namespace situ
