"""A quicker XNNPACKQuantizer for pages that quantize many times."""

from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer
from torchao.quantization.pt2e.quantizer import QuantizationConfig


class PTQQuantizer(XNNPACKQuantizer):
    """XNNPACKQuantizer for PTQ only: the same annotations, made several times faster.

    It leaves out the conv-BatchNorm patterns. prepare_pt2e folds BatchNorm before it asks the quantizer, so they match
    nothing, but building them is most of prepare's time (executorch 1.5.1). QAT needs them: use XNNPACKQuantizer.
    """

    SUPPORTED_PATTERNS = [pattern for pattern in XNNPACKQuantizer.SUPPORTED_PATTERNS if "_bn" not in pattern.name]  # noqa: RUF012

    def set_global(self, quantization_config: QuantizationConfig) -> "PTQQuantizer":
        if quantization_config.is_qat:
            raise ValueError("PTQQuantizer can't do QAT, is_qat=True: use XNNPACKQuantizer")
        super().set_global(quantization_config)
        return self
