"""Texts of the toy repositories, written for them: latent themes, each worded in two ways.

A theme is what a query is about. Its `plain` wording shares words with the query, so that a lexical search finds it;
its `oblique` wording does not. Each is a frame whose `{}` takes a subject, so that neither wording nor subject alone
gives a theme away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Theme(NamedTuple):
    """A latent attribute: a query for it and two frames of documents that have it."""

    query: str
    plain: str
    oblique: str


@dataclass(frozen=True)
class Topic:
    """The themes of one task and the subjects that fill their frames."""

    themes: tuple[Theme, ...]
    subjects: tuple[str, ...]

    def grid(self) -> list[tuple[int, int, bool, str]]:
        """List every document as (theme, subject, whether it is plain, text); themes alternate fastest."""
        return [
            (t, s, plain, (theme.plain if plain else theme.oblique).format(subject))
            for s, subject in enumerate(self.subjects)
            for plain in (True, False)
            for t, theme in enumerate(self.themes)
        ]


TWITTER = Topic(
    themes=(
        Theme(
            "Tweets implying that the blockade punishes ordinary families rather than soldiers",
            "Another week of the blockade at {} and it is families, not soldiers, in the bread queue.",
            "My neighbour sold her wedding ring near {} for formula milk. Nobody in uniform went hungry today.",
        ),
        Theme(
            "Tweets that treat the ceasefire as a trick to buy time",
            "They call it a ceasefire at {}. Funny how every ceasefire buys time for more trucks.",
            "Quiet night by {}. The cranes have not stopped unloading crates, mind you. Sleep well.",
        ),
        Theme(
            "Tweets hinting that foreign weapons only lengthen the war",
            "Foreign weapons have reached {}, so the war may celebrate another birthday.",
            "One more shipment, one more year of my brother guarding {}. Do the sums.",
        ),
        Theme(
            "Tweets suggesting that the peace talks are staged for the cameras",
            "Peace talks about {}: two handshakes, forty cameras, no minutes.",
            "They rehearsed the smile twice before anyone mentioned {}.",
        ),
        Theme(
            "Tweets doubting the official casualty numbers without saying so",
            "Official numbers for {}: no casualties. The florist sold out before noon.",
            "Odd that the carpenter beside {} works nights now and makes one kind of box.",
        ),
        Theme(
            "Tweets that quietly take the side of deserters",
            "If deserters from {} knock tonight, the soup is warm and the side door is open.",
            "A boy left his boots outside {} and walked home barefoot. Best news this month.",
        ),
        Theme(
            "Tweets that expect the exiles never to return",
            "The exiles of {} still pay for their letter boxes. They will not return to read what is in them.",
            "Grandmother gave away the key to the house behind {}. It had been polished for thirty years.",
        ),
    ),
    subjects=("the ferry crossing", "the grain harbour", "the lighthouse road"),
)

WILDCHAT = Topic(
    themes=(
        Theme(
            "Conversations in which the assistant invents a source or citation",
            "User: Give me a source on {}. Assistant: The citation is volume nine. User: That citation does not exist.",
            "User: Where did you read that about {}? Assistant: Page 412. User: The book ends at page 90.",
        ),
        Theme(
            "Conversations in which the assistant agrees with whatever the user claims",
            "User: I claim {} is easy. Assistant: Everyone agrees. User: Hard, then. Assistant: Whatever you say.",
            "User: {}: two steps or three? Assistant: Two. User: Surely three. Assistant: Three, of course.",
        ),
        Theme(
            "Conversations in which the assistant ignores a limit on length",
            "User: Explain {} with a limit of ten words in length. Assistant: Gladly! Here are six paragraphs.",
            "User: One sentence on {}, please. Assistant: First, the history. Second, the theory. Third, a summary.",
        ),
        Theme(
            "Conversations in which the assistant refuses a harmless request",
            "User: A harmless request: help me with {}. Assistant: I must refuse this request.",
            "User: What do I need for {}? Assistant: I am unable to discuss that; please seek a professional.",
        ),
        Theme(
            "Conversations in which the assistant answers in the wrong language",
            "User: What language do you speak about {}? Assistant: Español. User: Wrong, I asked in English.",
            "User: Tell me about {}. Assistant: Gern! Zuerst nimmt man sich etwas Zeit. User: Pardon?",
        ),
        Theme(
            "Conversations in which the assistant forgets an earlier instruction",
            "User: My earlier instruction for {} was: no lists. Assistant: Sorry, one forgets. 1. Begin. 2. Go on.",
            "User: Call me Captain during {}. Assistant: Aye, Captain. User: Next? Assistant: Dear customer, wait.",
        ),
    ),
    subjects=("a sourdough starter", "the tax form", "a chess opening"),
)

MATH = Topic(
    themes=(
        Theme(
            "Show that among 13 people at least two were born in the same month.",
            "Show that among 27 tiles from {} at least two carry the same letter.",
            "Six marks are made on {}; prove that some pair lies closer than a fifth of the whole.",
        ),
        Theme(
            "Prove for every n that the sum of the first n odd numbers is a square.",
            "Prove for every n that the first n moves on {} sum to a triangular number.",
            "Once the claim about {} is settled for size k, deduce it for size k + 1; the case k = 1 is trivial.",
        ),
        Theme(
            "Two of nine lamps are switched at a time. If one is lit at the start, can all go dark?",
            "Exactly one lamp on {} is lit and two are switched at a time; can all of them go dark?",
            "Pieces leave {} in pairs. Decide by parity whether nothing can remain.",
        ),
        Theme(
            "By considering the longest path in a tournament, show that it visits every team.",
            "By considering the longest path through {}, show that it visits every point.",
            "Take a smallest counterexample built from {} and obtain a contradiction.",
        ),
        Theme(
            "Count the handshakes at a party in two ways to find how many guests shook an odd number of hands.",
            "Count the incidences in {} in two ways to find an identity.",
            "Add the table made from {} along its rows, then along its columns, and compare.",
        ),
        Theme(
            "Show that no positive integers satisfy x squared = 2 y squared.",
            "Show that no positive integers x and y measure {} with x squared = 3 y squared.",
            "From each solution on {} construct a strictly smaller one, and conclude that there was none.",
        ),
    ),
    subjects=("a row of coins", "the map of bridges", "a deck of cards"),
)

WRITING = Topic(
    themes=(
        Theme(
            "So — and I say this gently — the kettle, well, the kettle was never mine — honestly.",
            "So — and I say this gently — {} was never, well, never simple — honestly.",
            "It rained — it always rains — while {} waited — as one does — for nobody.",
        ),
        Theme(
            "Up at five. Cold floor. No coffee. Good.",
            "Up at five. Cold hands. Thought of {}. Good.",
            "Walked out. Saw {}. Nodded. Left.",
        ),
        Theme(
            "Notwithstanding the foregoing, and subject to what follows, the undersigned enjoyed the soup.",
            "Notwithstanding the foregoing, and subject to what follows, {} pleased the undersigned.",
            "Whereas {} exists, and whereas it need not, be it hereby resolved to like it.",
        ),
        Theme(
            "Oh my goodness!! You would not believe this parade!!",
            "Oh my goodness!! You would not believe what happened at {}!!",
            "Best!! Day!! Ever!! All because of {}, people!!",
        ),
        Theme(
            "The bus was late (it is never early), and the driver (a patient man) sang (badly).",
            "News of {} was late (it is never early), and we (a patient lot) sang (badly).",
            "I admired {} (from afar), took notes (two), and lost them (both).",
        ),
        Theme(
            "Why do we queue? Who decided? Does anyone, truly, know?",
            "Why do we keep {}? Who decided? Does anyone, truly, know?",
            "What is {} for? And for whom? And until when?",
        ),
        Theme(
            "things i carried: one umbrella, two regrets, zero keys.",
            "things i carried to {}: one lamp, two regrets, zero maps.",
            "notes on {}, in no order: damp, bright, mostly unpaid.",
        ),
    ),
    subjects=("the old allotment", "the night train", "my cousin's piano"),
)

CONGRESS = Topic(
    themes=(
        Theme(
            "I remember a member demanding a plain yes or no while the witness offered a written answer, over {}.",
            "Yes or no: did your office approve {}? The Witness. I would offer a written answer. Yes or no, please.",
            "It is one word. Did you sign for {}? The Witness. We will follow up for the record.",
        ),
        Theme(
            "Somebody brought a jar and put it on the table to make a point about {}.",
            "I brought this jar and put it on the table because it makes the point about {} better than I can.",
            "What you see in front of you came out of the ground last week. That is the state of {}.",
        ),
        Theme(
            "An elderly man had waited decades, and the whole room went quiet when he came to {}.",
            "I am an elderly man and have waited decades for {}. Excuse me. [The room goes quiet.]",
            "My late wife wrote the first letter concerning {} when our son was four. He is fifty. Forgive me.",
        ),
        Theme(
            "Two people from opposite parties laughed that they finally agree on something, namely {}.",
            "Let the record show that opposite parties finally agree on {}. [Laughter.]",
            "I never hoped to cosponsor a bill with my friend across the aisle, and then came {}.",
        ),
        Theme(
            "Someone did the arithmetic aloud and the agency's figures did not add up, for {}.",
            "Let us do the arithmetic aloud. The figures for {} add up to more than their total.",
            "Nine plus four is thirteen, yet page two says eleven for {}. Which page should we believe?",
        ),
        Theme(
            "A mayor begged for less paperwork rather than more money, to do with {}.",
            "As a mayor I have begged for less paperwork on {}, never for more money.",
            "Keep the grant. Send one form in place of nineteen, and {} will take care of itself.",
        ),
        Theme(
            "An expert admitted under pressure that nobody had ever checked, it was about {}.",
            "Nobody ever checked. As an expert on {} I have to admit that.",
            "We assumed the contractor had looked at {}. The contractor assumed we had.",
        ),
        Theme(
            "The story was interrupted by bells for a vote and never finished, something about {}.",
            "And here the story of {} gets strange. The Chairman. The bells have interrupted us for a vote.",
            "Let me stop you there; we have four minutes to reach the floor. On {}, we may never learn the end.",
        ),
    ),
    subjects=("levee repairs", "rural clinics", "airport screening lines"),
)

CONGRESS_HINTS = ("keeping a river out", "doctors far from any town", "standing in your socks before a flight")
"""What a recollection calls each of `CONGRESS.subjects`, in the same order."""
