// Written from onnx.defs of ONNX 1.23.2 (get_all_schemas_with_history); sorted by name.
#include "onnx/known_ops.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "onnx/op_importer.h"

namespace tripod::importer {
namespace {

// clang-format off
constexpr KnownOp kOps[] = {
    {"Abs", 1}, {"Acos", 7}, {"Acosh", 9}, {"Add", 1, "axis@1-6 broadcast@1-6"}, {"AffineGrid", 20, "align_corners"},
    {"And", 1, "axis@1-6 broadcast@1-6"}, {"ArgMax", 1, "axis keepdims select_last_index@12"},
    {"ArgMin", 1, "axis keepdims select_last_index@12"}, {"Asin", 7}, {"Asinh", 9}, {"Atan", 7}, {"Atanh", 9},
    {"Attention", 23,
     "is_causal kv_num_heads left_window_size@25 q_num_heads qk_matmul_output_mode "
     "right_window_size@25 scale softcap softmax_precision"},
    {"AveragePool", 1, "auto_pad ceil_mode@10 count_include_pad@7 dilations@19 kernel_shape pads strides"},
    {"BatchNormalization", 1, "epsilon is_test@1-6 momentum spatial@1-8 training_mode@14"},
    {"Bernoulli", 15, "dtype seed"}, {"BitCast", 26, "to"}, {"BitShift", 11, "direction"}, {"BitwiseAnd", 18},
    {"BitwiseNot", 18}, {"BitwiseOr", 18}, {"BitwiseXor", 18}, {"BlackmanWindow", 17, "output_datatype periodic"},
    {"Cast", 1, "round_mode@24 saturate@19 to"}, {"CastLike", 15, "round_mode@24 saturate@19"},
    {"CausalConvWithState", 27, "activation"}, {"Ceil", 1}, {"Celu", 12, "alpha"}, {"CenterCropPad", 18, "axes"},
    {"Clip", 1, "max@1-10 min@1-10"}, {"Col2Im", 18, "dilations pads strides"}, {"Compress", 9, "axis"},
    {"Concat", 1, "axis"}, {"ConcatFromSequence", 11, "axis new_axis"},
    {"Constant", 1,
     "sparse_value@11 value value_float@12 value_floats@12 value_int@12 value_ints@12 value_string@12 "
     "value_strings@12"},
    {"ConstantOfShape", 9, "value"}, {"Conv", 1, "auto_pad dilations group kernel_shape pads strides"},
    {"ConvInteger", 10, "auto_pad dilations group kernel_shape pads strides"},
    {"ConvTranspose", 1, "auto_pad dilations group kernel_shape output_padding output_shape pads strides"}, {"Cos", 7},
    {"Cosh", 9}, {"CumProd", 26, "exclusive reverse"}, {"CumSum", 11, "exclusive reverse"},
    {"DFT", 17, "axis@1-19 inverse onesided"},
    {"DeformConv", 19, "dilations group kernel_shape offset_group pads strides"},
    {"DepthToSpace", 1, "blocksize mode@11"}, {"DequantizeLinear", 10, "axis@13 block_size@21 output_dtype@23"},
    {"Det", 11}, {"Div", 1, "axis@1-6 broadcast@1-6"}, {"Dropout", 1, "is_test@1-6 ratio@1-11 seed@12"},
    {"DynamicQuantizeLinear", 11}, {"Einsum", 12, "equation"}, {"Elu", 1, "alpha"},
    {"Equal", 1, "axis@1-6 broadcast@1-6"}, {"Erf", 9}, {"Exp", 1}, {"Expand", 8}, {"EyeLike", 9, "dtype k"},
    {"Flatten", 1, "axis"}, {"Floor", 1},
    {"GRU", 1,
     "activation_alpha activation_beta activations clip direction hidden_size layout@14 "
     "linear_before_reset@3 output_sequence@1-6"},
    {"Gather", 1, "axis"}, {"GatherElements", 11, "axis"}, {"GatherND", 11, "batch_dims@12"},
    {"Gelu", 20, "approximate"}, {"Gemm", 1, "alpha beta broadcast@1-6 transA transB"}, {"GlobalAveragePool", 1},
    {"GlobalLpPool", 1, "p"}, {"GlobalMaxPool", 1}, {"Greater", 1, "axis@1-6 broadcast@1-6"}, {"GreaterOrEqual", 12},
    {"GridSample", 16, "align_corners mode padding_mode"},
    {"GroupNormalization", 18, "epsilon num_groups stash_type@21"}, {"HammingWindow", 17, "output_datatype periodic"},
    {"HannWindow", 17, "output_datatype periodic"}, {"HardSigmoid", 1, "alpha beta"}, {"HardSwish", 14},
    {"Hardmax", 1, "axis"}, {"Identity", 1}, {"If", 1, "else_branch then_branch"}, {"ImageDecoder", 20, "pixel_format"},
    {"InstanceNormalization", 1, "epsilon"}, {"IsInf", 10, "detect_negative detect_positive"}, {"IsNaN", 9},
    {"LRN", 1, "alpha beta bias size"},
    {"LSTM", 1,
     "activation_alpha activation_beta activations clip direction hidden_size input_forget layout@14 "
     "output_sequence@1-6"},
    {"LayerNormalization", 17, "axis epsilon stash_type"}, {"LeakyRelu", 1, "alpha"},
    {"Less", 1, "axis@1-6 broadcast@1-6"}, {"LessOrEqual", 12},
    {"LinearAttention", 27, "chunk_size kv_num_heads q_num_heads scale update_rule"}, {"Log", 1},
    {"LogSoftmax", 1, "axis"}, {"Loop", 1, "body"}, {"LpNormalization", 1, "axis p"},
    {"LpPool", 1, "auto_pad ceil_mode@18 dilations@18 kernel_shape p pads strides"}, {"MatMul", 1},
    {"MatMulInteger", 10}, {"Max", 1},
    {"MaxPool", 1, "auto_pad ceil_mode@10 dilations@10 kernel_shape pads storage_order@8 strides"},
    {"MaxRoiPool", 1, "pooled_shape spatial_scale"}, {"MaxUnpool", 9, "kernel_shape pads strides"}, {"Mean", 1},
    {"MeanVarianceNormalization", 9, "axes"}, {"MelWeightMatrix", 17, "output_datatype"}, {"Min", 1}, {"Mish", 18},
    {"Mod", 10, "fmod"}, {"Mul", 1, "axis@1-6 broadcast@1-6"}, {"Multinomial", 7, "dtype sample_size seed"}, {"Neg", 1},
    {"NegativeLogLikelihoodLoss", 12, "ignore_index reduction"}, {"NonMaxSuppression", 10, "center_point_box"},
    {"NonZero", 9}, {"Not", 1}, {"OneHot", 9, "axis"}, {"Optional", 15, "type"}, {"OptionalGetElement", 15},
    {"OptionalHasElement", 15}, {"Or", 1, "axis@1-6 broadcast@1-6"}, {"PRelu", 1},
    {"Pad", 1, "mode pads@2-10 value@1-10"}, {"Pow", 1, "axis@1-6 broadcast@1-6"},
    {"QLinearConv", 10, "auto_pad dilations group kernel_shape pads strides"}, {"QLinearMatMul", 10},
    {"QuantizeLinear", 10, "axis@13 block_size@21 output_dtype@21 precision@23 saturate@19"},
    {"RMSNormalization", 23, "axis epsilon stash_type"},
    {"RNN", 1,
     "activation_alpha activation_beta activations clip direction hidden_size layout@14 "
     "output_sequence@1-6"},
    {"RandomNormal", 1, "dtype mean scale seed shape"}, {"RandomNormalLike", 1, "dtype mean scale seed"},
    {"RandomUniform", 1, "dtype high low seed shape"}, {"RandomUniformLike", 1, "dtype high low seed"},
    {"Range", 11, "stash_type@27"}, {"Reciprocal", 1}, {"ReduceL1", 1, "axes@1-17 keepdims noop_with_empty_axes@18"},
    {"ReduceL2", 1, "axes@1-17 keepdims noop_with_empty_axes@18"},
    {"ReduceLogSum", 1, "axes@1-17 keepdims noop_with_empty_axes@18"},
    {"ReduceLogSumExp", 1, "axes@1-17 keepdims noop_with_empty_axes@18"},
    {"ReduceMax", 1, "axes@1-17 keepdims noop_with_empty_axes@18"},
    {"ReduceMean", 1, "axes@1-17 keepdims noop_with_empty_axes@18"},
    {"ReduceMin", 1, "axes@1-17 keepdims noop_with_empty_axes@18"},
    {"ReduceProd", 1, "axes@1-17 keepdims noop_with_empty_axes@18"},
    {"ReduceSum", 1, "axes@1-12 keepdims noop_with_empty_axes@13"},
    {"ReduceSumSquare", 1, "axes@1-17 keepdims noop_with_empty_axes@18"}, {"RegexFullMatch", 20, "pattern"},
    {"Relu", 1}, {"Reshape", 1, "allowzero@14"},
    {"Resize", 10,
     "antialias@18 axes@18 coordinate_transformation_mode@11 cubic_coeff_a@11 exclude_outside@11 "
     "extrapolation_value@11 keep_aspect_ratio_policy@18 mode nearest_mode@11"},
    {"ReverseSequence", 10, "batch_axis time_axis"},
    {"RoiAlign", 10, "coordinate_transformation_mode@16 mode output_height output_width sampling_ratio spatial_scale"},
    {"RotaryEmbedding", 23, "interleaved num_heads rotary_embedding_dim"}, {"Round", 11}, {"STFT", 17, "onesided"},
    {"Scan", 8,
     "body directions@1-8 num_scan_inputs scan_input_axes@9 scan_input_directions@9 "
     "scan_output_axes@9 scan_output_directions@9"},
    {"Scatter", 9, "axis", 11}, {"ScatterElements", 11, "axis reduction@16"}, {"ScatterND", 11, "reduction@16"},
    {"Selu", 1, "alpha gamma"}, {"SequenceAt", 11}, {"SequenceConstruct", 11}, {"SequenceEmpty", 11, "dtype"},
    {"SequenceErase", 11}, {"SequenceInsert", 11}, {"SequenceLength", 11}, {"SequenceMap", 17, "body"},
    {"Shape", 1, "end@15 start@15"}, {"Shrink", 9, "bias lambd"}, {"Sigmoid", 1}, {"Sign", 9}, {"Sin", 7}, {"Sinh", 9},
    {"Size", 1}, {"Slice", 1, "axes@1-9 ends@1-9 starts@1-9"}, {"Softmax", 1, "axis"},
    {"SoftmaxCrossEntropyLoss", 12, "ignore_index reduction"}, {"Softplus", 1}, {"Softsign", 1},
    {"SpaceToDepth", 1, "blocksize mode@28"}, {"Split", 1, "axis num_outputs@18 split@1-12"},
    {"SplitToSequence", 11, "axis keepdims"}, {"Sqrt", 1}, {"Squeeze", 1, "axes@1-12"}, {"StringConcat", 20},
    {"StringNormalizer", 10, "case_change_action is_case_sensitive locale stopwords"},
    {"StringSplit", 20, "delimiter maxsplit"}, {"Sub", 1, "axis@1-6 broadcast@1-6"}, {"Sum", 1},
    {"SwiGLU", 28, "alpha"}, {"Swish", 24, "alpha"}, {"Tan", 7}, {"Tanh", 1}, {"TensorScatter", 24, "axis mode"},
    {"TfIdfVectorizer", 9,
     "max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes pool_int64s "
     "pool_strings weights"},
    {"ThresholdedRelu", 10, "alpha"}, {"Tile", 1}, {"TopK", 1, "axis k@1-9 largest@11 sorted@11"},
    {"Transpose", 1, "perm"}, {"Trilu", 14, "upper"}, {"Unique", 11, "axis sorted"}, {"Unsqueeze", 1, "axes@1-12"},
    {"Upsample", 1, "height_scale@1-6 mode scales@7-8 width_scale@1-6", 10}, {"Where", 9},
    {"Xor", 1, "axis@1-6 broadcast@1-6"},
};
// clang-format on

// One attribute of a table row: axes, axes@18, axes@1-12.
struct Attribute {
  std::string_view name;
  int since = 0, until = kMaxOpset;
};

int number(std::string_view digits) {
  int n = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return n;
}

std::vector<Attribute> attributes_of(const KnownOp& op) {
  std::vector<Attribute> r;
  for (std::string_view rest = op.attributes; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const size_t at = word.find('@'), dash = word.find('-');
    Attribute a{word.substr(0, at)};
    if (at != word.npos) a.since = number(word.substr(at + 1));
    if (dash != word.npos) a.until = number(word.substr(dash + 1));
    r.push_back(a);
  }
  return r;
}

}  // namespace

std::vector<std::string_view> attribute_names(const KnownOp& op, int opset) {
  std::vector<std::string_view> r;
  for (const Attribute& a : attributes_of(op))
    if (a.since <= opset && opset <= a.until) r.push_back(a.name);
  return r;
}

const KnownOp* known_op(std::string_view name) {
  const auto* it = std::lower_bound(std::begin(kOps), std::end(kOps), name,
                                    [](const KnownOp& k, std::string_view n) { return k.name < n; });
  return it != std::end(kOps) && it->name == name ? it : nullptr;
}

}  // namespace tripod::importer
