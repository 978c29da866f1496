"""The causal Transformer of the update papers: pre-norm blocks, learned positions.

Vaswani et al. (2017), "Attention Is All You Need", arXiv:1706.03762. The default size is that of
Zanella-Béguelin et al. (2020), arXiv:1912.07942, section 3.2: 4 layers, 6 heads, hidden 192.

Differs from the paper: layer norms precede each sublayer, so that training needs no warm-up;
positions are learned.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige import _validate
from vestige.data.vocabulary import Vocabulary
from vestige.memory import MOST_LAYERS, WIDEST
from vestige.models.key_value_cache import KeysAndValues, all_rows
from vestige.models.protocols import BodyAndHead, LanguageModel, require_evaluation


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a causal Transformer.

    Attributes:
        layers: blocks of attention and feed-forward.
        heads: attention heads, each of hidden_size / heads.
        hidden_size: width of a token's vector throughout.
        feed_forward: width inside a feed-forward layer.
        max_length: most tokens that it can read.
        dropout: probability of dropping a unit of the input and of each sublayer's output.
    """

    layers: int = 4
    heads: int = 6
    hidden_size: int = 192
    feed_forward: int = 768
    max_length: int = 256
    dropout: float = 0.1

    def __post_init__(self) -> None:
        _validate.whole(1, MOST_LAYERS, layers=self.layers)
        for name in ("heads", "hidden_size", "feed_forward", "max_length"):
            _validate.whole(1, WIDEST, **{name: getattr(self, name)})
        _validate.fraction(dropout=self.dropout)
        if self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size must be a multiple of heads, got {self.hidden_size} and {self.heads}"
            )


@dataclass(frozen=True)
class TransformerState:
    """Keys and values of n sequences in each layer, and hidden vectors (n, hidden_size)."""

    cache: tuple[KeysAndValues, ...]
    hidden: Tensor

    @property
    def has_read(self) -> bool:
        return self.length > 0

    @property
    def length(self) -> int:
        """Number of tokens read."""
        return self.cache[0].length

    @property
    def nbytes(self) -> int:
        return self.hidden.nbytes + sum(layer.nbytes for layer in self.cache)

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, index: Tensor | slice) -> Self:
        if all_rows(index, len(self)):
            return self
        return type(self)(tuple(layer[index] for layer in self.cache), self.hidden[index])


class CausalTransformer(BodyAndHead, LanguageModel):
    """Token and position embeddings, blocks, a final norm and a linear head."""

    architecture: ClassVar[str] = "transformer"
    carries_state: ClassVar[bool] = False
    config: TransformerConfig

    def __init__(self, vocabulary: Vocabulary, config: TransformerConfig | None = None) -> None:
        super().__init__()
        self.vocabulary, self.config = vocabulary, config or TransformerConfig()
        self.vocab_size, self.longest = len(vocabulary), self.config.max_length
        width = self.config.hidden_size
        self.embedding = nn.Embedding(self.vocab_size, width)
        self.positions = nn.Embedding(self.config.max_length, width)
        self.blocks = nn.ModuleList(Block(self.config) for _ in range(self.config.layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, self.vocab_size)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def body(self, tokens: Tensor, state: TransformerState | None = None) -> tuple[Tensor, None]:
        """Hidden vectors (b, t, hidden_size) after each token.

        Raises:
            ValueError: the text becomes longer than max_length.
        """
        return self._read(tokens, state)[0], None

    def unread(self, n: int) -> TransformerState:
        config, weight = self.config, self.head.weight
        empty = weight.new_empty(n, config.heads, 0, config.hidden_size // config.heads)
        cache = (KeysAndValues.of(empty, empty),) * config.layers
        return TransformerState(cache, weight.new_empty(n, config.hidden_size))

    @torch.no_grad()
    def read(self, state: TransformerState, tokens: Tensor) -> TransformerState:
        """The n states after each has read t more tokens, (n, t), in one forward pass.

        Raises:
            ValueError: the text becomes longer than max_length, or dropout is on.
        """
        require_evaluation(self, drops=self.config.dropout)
        if not tokens.shape[1]:
            return state
        hidden, cache = self._read(tokens, state)
        return TransformerState(cache, hidden[:, -1])

    def _read(
        self, tokens: Tensor, state: TransformerState | None
    ) -> tuple[Tensor, tuple[KeysAndValues, ...]]:
        start = state.length if state is not None else 0
        end = start + tokens.shape[1]
        if end > self.config.max_length:
            raise ValueError(
                f"a text must have at most max_length = {self.config.max_length} tokens "
                f"(its beginning counts as one), got {end}"
            )
        position = torch.arange(start, end, device=tokens.device)
        # Each row has its own positions, so that each has its own gradient.
        hidden = self.embedding(tokens) + self.positions(position.repeat(len(tokens), 1))
        hidden = functional.dropout(hidden, self.config.dropout, self.training)
        cache = []
        for layer, block in enumerate(self.blocks):
            hidden, keys_and_values = block(
                hidden, state.cache[layer] if state is not None else None
            )
            cache.append(keys_and_values)
        return self.norm(hidden), tuple(cache)


class Block(nn.Module):
    """Attention and feed-forward layer, each with a residual connection."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads, self.dropout = config.heads, config.dropout
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.expand = nn.Linear(width, config.feed_forward)
        self.contract = nn.Linear(config.feed_forward, width)

    def forward(self, hidden: Tensor, cached: KeysAndValues | None) -> tuple[Tensor, KeysAndValues]:
        """Outputs of the block (n, t, width), and all keys and values so far."""
        n, t, width = hidden.shape
        projected = self.queries_keys_values(self.attention_norm(hidden))
        # (n, t, 3 * width) -> three of (n, heads, t, head_size)
        queries, keys, values = projected.view(n, t, 3, self.heads, width // self.heads).permute(
            2, 0, 3, 1, 4
        )
        cache = KeysAndValues.of(keys, values)
        if cached is not None:
            cache = cached.extended(keys, values)
            keys, values = cache.read()
        # A single query may attend to all tokens; several queries after a cache need a mask.
        mask, needs_mask = None, cache.length > t > 1
        if needs_mask:
            mask = torch.ones(t, cache.length, dtype=torch.bool, device=hidden.device)
            mask = mask.tril(cache.length - t)
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=t > 1 and not needs_mask
        )
        attended = self.attention_out(attended.transpose(1, 2).reshape(n, t, width))
        hidden = hidden + functional.dropout(attended, self.dropout, self.training)
        inner = functional.gelu(self.expand(self.feed_forward_norm(hidden)))
        inner = functional.dropout(self.contract(inner), self.dropout, self.training)
        return hidden + inner, cache
