"""English function words: closed classes, whose frequencies tell how somebody writes and not what about."""

from __future__ import annotations

_ARTICLES_AND_DETERMINERS = """
a an the this that these those each every either neither both all any some no none another other others such same
enough much many more most few fewer fewest little less least several half own
"""
_PRONOUNS = """
i me my mine myself we us our ours ourselves you your yours yourself yourselves thou thee thy he him his himself she
her hers herself it its itself they them their theirs themselves one oneself who whom whose which what whoever whatever
whichever somebody someone something anybody anyone anything nobody nothing everybody everyone everything
"""
_PREPOSITIONS = """
aboard about above across after against along amid among amongst around as at before behind below beneath beside
besides between beyond but by concerning despite down during except for from in inside into like near of off on onto
opposite out outside over past per regarding round since than through throughout till to toward towards under
underneath unlike until unto up upon versus via with within without
"""
_CONJUNCTIONS = """
and or nor so yet if unless because although though while whilst whereas whether lest once provided whenever wherever
"""
_AUXILIARIES = """
am is are was were be been being have has had having do does did doing done shall should will would can could may might
must ought cannot need dare used
"""
_ADVERBS = """
not never ever always often sometimes seldom rarely again still already just only even also too very quite rather
almost nearly hardly scarcely merely indeed perhaps maybe however therefore thus hence otherwise moreover furthermore
nevertheless nonetheless instead meanwhile then now soon here there everywhere nowhere somewhere anywhere when where
why how well really actually certainly surely probably possibly simply together apart away back forth further else
anyway somehow somewhat altogether thereby therein thereof whereby wherein afterwards later sooner lately formerly
"""
_CONTRACTIONS = """
don't doesn't didn't won't wouldn't can't couldn't shouldn't isn't aren't wasn't weren't haven't hasn't hadn't i'm i've
i'll i'd you're you've you'll he's she's it's we're we've we'll they're they've they'll that's there's what's let's
"""
_INTERJECTIONS = "yes oh ah well alas okay please"

FUNCTION_WORDS: tuple[str, ...] = tuple(
    dict.fromkeys(
        " ".join(
            (
                _ARTICLES_AND_DETERMINERS,
                _PRONOUNS,
                _PREPOSITIONS,
                _CONJUNCTIONS,
                _AUXILIARIES,
                _ADVERBS,
                _CONTRACTIONS,
                _INTERJECTIONS,
            )
        ).split()
    )
)
"""About 330 of them, each once."""
