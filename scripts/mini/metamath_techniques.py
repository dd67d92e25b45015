"""The hidden techniques of Mini-Math: the lemmas of set.mm that stand for each, and the words that name it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Technique:
    """One way to prove things, recognised by the lemmas that a proof cites.

    `name` is also the query of the leakage check. `lemmas` are labels of set.mm: a lemma and its variants
    (inference, deduction, closed form, bound-variable form). `words` are regular expressions, matched as whole
    words without regard to case; no text of the set matches one.
    """

    slug: str
    name: str
    family: str
    lemmas: frozenset[str]
    words: tuple[str, ...]
    pattern: re.Pattern[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        expression = re.compile(rf"\b(?:{'|'.join(self.words)})\b", re.IGNORECASE)
        object.__setattr__(self, "pattern", expression)


def _technique(slug: str, name: str, family: str, lemmas: str, *words: str) -> Technique:
    return Technique(slug, name, family, frozenset(lemmas.split()), words)


TECHNIQUES = (
    _technique(
        "integer-induction",
        "mathematical induction",
        "induction and recursion",
        "nnind nnindALT nnindd nnindf nn0ind nn0indALT nn0indd nn0ind-raph uzind uzind2 uzind3 uzind4 uzind4i "
        "uzind4s uzind4s2 uzindi fzind fzind2 fnn0ind zindd peano5nni peano5uzi peano5uzti",
        r"(?:\w+-)?induct\w*",
    ),
    _technique(
        "ordinal-induction",
        "Peano induction, finite induction",
        "induction and recursion",
        "finds finds1 finds2 findsg findes find peano5",
        r"Peano\w*",
        r"(?:\w+-)?induct\w*",
    ),
    _technique(
        "finite-set-induction",
        "induction on cardinality",
        "induction and recursion",
        "findcard findcard2 findcard2s findcard2d findcard3",
        r"(?:\w+-)?induct\w*",
    ),
    _technique(
        "transfinite-induction",
        "transfinite induction",
        "induction and recursion",
        "tfi tfis tfis2 tfis2f tfis3 tfisi tfisg tfindes tfinds tfindsg tfindsg2 tfinds2 tfinds3",
        r"(?:\w+-)?induct\w*",
        r"transfinite\w*",
    ),
    _technique(
        "least-number",
        "well-ordering principle, least element",
        "induction and recursion",
        "nnwo nnwof nnwos uzwo uzwo2 uzwo3 uzwo4 infssuzcl infssuzle zmin onint oninton onintrab onintrab2 onminsb "
        "onminesb onminex onmindif indstr indstr2 nnsinds nn0sinds uzsinds",
        r"(?<!at )least",
        r"smallest",
        r"minim(?:um|al)",
        r"well-?\s?order\w*",
    ),
    _technique(
        "transfinite-recursion",
        "definition by transfinite recursion",
        "induction and recursion",
        "tfr1 tfr1a tfr2 tfr2a tfr2b tfr3 tz7.44-1 tz7.44-2 tz7.44-3 tz7.48-1 tz7.48-2 tz7.48-3 tz7.49 tz7.49c "
        "rdgfun rdgdmlim rdgfnon rdg0 rdg0g rdgsuc rdgsucg rdgsucmptf rdgsucmpt2 rdglim rdglimg rdglim2 rdglim2a "
        "frfnom fr0g frsuc frsucmpt frsucmpt2",
        r"recurs\w*",
        r"transfinite\w*",
    ),
    _technique(
        "well-ordering-theorem",
        "well-ordering theorem, numeration theorem",
        "choice",
        "numth numth2 numth3 numthcor weth ween cardeqv dfac8 dfac8a dfac8b dfac8c dfac10 dfac10b dfac10c cardid "
        "cardidg cardval3 entri entri2 entri3 domtri",
        r"well-?\s?order\w*",
        r"numera\w*",
        r"choice",
        r"AC",
        r"trichotom\w*",
    ),
    _technique(
        "choice-function",
        "axiom of choice, choice function, countable or dependent choice",
        "choice",
        "ac2 ac3 ac4 ac4c ac5 ac5b ac6 ac6c4 ac6c5 ac6s ac6s2 ac6s3 ac6s3f ac6s4 ac6s5 ac6s6 ac6s6f ac6sg ac6sf "
        "ac6gf ac6sfi ac6num ac7 ac7g ac8 ac9 ac9s ac10ct axac axac2 axac3 axaci acni acni2 acni3 acnlem fnchoice "
        "aceq0 aceq1 aceq2 dfac2 dfac3 dfac4 dfac5 dfac7 "
        "axcc axcc2 axcc3 axcc4 axcc4dom axdc axdc2 axdc3 axdc4 axdc4uz",
        r"choice",
        r"AC",
        r"choos\w*",
        r"chose\w*",
        r"dependent",
    ),
    _technique(
        "schroeder-bernstein",
        "Schroeder-Bernstein theorem",
        "cardinality",
        "sbth sbthb sbthcl",
        r"Schr(?:oe|ö)der\w*",
        r"Bernstein\w*",
    ),
    _technique(
        "pigeonhole",
        "pigeonhole principle",
        "cardinality",
        "php php2 php3 php4 php5 nneneq fisseneq fphpd fphpdo fiphp3d phpreu f1finf1o ominf",
        r"pigeon-?\s?hole\w*",
        r"pigeon\w*",
    ),
    _technique(
        "cantor",
        "Cantor's theorem, diagonal argument",
        "cardinality",
        "canth canth2 canth2g canth3 canth4 canthwdom canthnum canthwe canthp1 ruc",
        r"Cantor\w*",
        r"diagonal\w*",
    ),
    _technique(
        "counting-by-bijection",
        "counting by bijection, one-to-one correspondence",
        "cardinality",
        "hasheqf1o hasheqf1oi hashen hasheni hashf1rn f1oen f1oeng f1oen2g f1oen3g en2d en2i en3d en3i f1ocnvd",
        r"biject\w*",
        r"correspondences?",
        r"(?:one-to-one|1-1),? ?(?:and |-)?onto",
        r"counting",
        r"same (?:size|cardinality|number)",
        r"equinumer\w*",
    ),
    _technique(
        "counting-by-parts",
        "counting by partition into disjoint parts",
        "cardinality",
        "hashun hashun2 hashunx hashiun hashuni hashssdif hashdifsn hashdifpr hashunsng hashrabrex",
        r"disjoint unions?",
        r"disjoint parts?",
        r"counting",
        r"partition\w*",
    ),
    _technique(
        "supremum",
        "supremum, infimum",
        "real analysis",
        "axsup sup2 sup3 infm3 suprcl suprcld suprub suprubd suprlub suprnub suprleub suprleubrd supeu suprzcl "
        "suprzcl2 suprzub suprfinzcl infrecl infregelb infrelb lbinf lbinfcl lbinfle",
        r"supremum\w*",
        r"suprema",
        r"sup",
        r"infim\w*",
        r"inf",
        r"least upper bounds?",
        r"greatest lower bounds?",
    ),
    _technique(
        "archimedean",
        "Archimedean property",
        "real analysis",
        "arch nnrecl bndndx btwnz qbtwnre qbtwnxr expnbnd expnlbnd expnlbnd2",
        r"Archimed\w*",
    ),
    _technique(
        "mean-value",
        "mean value theorem, Rolle's theorem",
        "real analysis",
        "rolle cmvth mvth dvlip dvlipcn dvlip2 c1lip1 c1lip2 c1lip3 dvle dveq0 dv11cn dvgt0 dvlt0 dvge0 dvne0 "
        "dvbdfbdioo dvcvx",
        r"mean value\w*",
        r"Rolle\w*",
        r"values? theorem\w*",
    ),
    _technique(
        "squeeze",
        "squeeze theorem, sandwich theorem",
        "real analysis",
        "climsqz climsqz2 rlimsqz rlimsqz2 climle rlimle climlec2 climlec3 o1le lo1le",
        r"squeez\w*",
        r"sandwich\w*",
        r"compar\w*",
    ),
    _technique(
        "series-comparison",
        "comparison test, ratio test, geometric progression",
        "sums and series",
        "cvgcmp cvgcmpub cvgcmpce cvgrat mtest mtestbdd isumless abscvgcvg geoserg geoser geolim geolim2 georeclim "
        "geo2sum geo2lim geomulcvg geoisum geoisum1 geoisum1c geoihalfsum geolim3 geomcau",
        r"compar\w*",
        r"ratio\w*",
        r"M-test",
        r"tests?",
        r"geometric\w*",
    ),
    _technique(
        "triangle-inequality",
        "triangle inequality",
        "real analysis",
        "abstri abstrii abstrid abs2dif abs2dif2 abs2difd abs2dif2d abs2difabs abs3dif abs3difi abs3difd abs3lem "
        "abs3lemi abs3lemd fsumabs itgabs mettri mettri2 mettri3 xmettri xmettri2 xmettri3 mettrifi nmtri nm2dif nvtri "
        "nvabs norm-ii norm-iii norm-ii-i normsub0 norm3dif norm3lem norm3lemt "
        "xmetrtri metrtri",
        r"triangle\w*",
        r"triangular",
    ),
    _technique(
        "interchange-of-sums",
        "interchanging the order of summation, double sum",
        "sums and series",
        "fsumcom fsumcom2 fsum2d fsumxp fsum0diag fsum0diag2 fprodcom fprodcom2 fprod2d gsumcom gsumcom2 gsumcom3 "
        "gsumcom3fi fsumdvdscom dvdsflsumcom fsumfldivdiag musumsum",
        r"interchang\w*",
        r"double (?:sum|summation|product)s?",
        r"order of summation",
    ),
    _technique(
        "bezout",
        "Bézout's identity",
        "divisibility",
        "bezout bezoutr bezoutr1 dvdsgcd dvdsgcdb mulgcd mulgcdr absmulgcd gcddiv rpmulgcd rpmulgcd2 dvdslegcd",
        r"B(?:e|é)zout\w*",
        r"linear combinations?",
    ),
    _technique(
        "euclids-lemma",
        "Euclid's lemma",
        "divisibility",
        "euclemma coprmdvds coprmdvds2 coprm prmdvdsexp prmdvdsexpb prmdvdsexpr rpdvds rpexp rpexp1i rpexp12i prmexpb "
        "isprm6",
        r"Euclid(?:'s|s)?",
    ),
    _technique(
        "unique-factorization",
        "unique factorization, fundamental theorem of arithmetic",
        "divisibility",
        "exprmfct prmind prmind2 pc11 pc2dvds pcprmpw pcprmpw2 pcadd pcmul pcdiv pcelnn 1arith 1arith2 prmunb isprm5 "
        "infpn infpn2 ncoprmgcdne1b",
        r"factor\w*",
        r"fundamental\w*",
        r"arithmetic\w*",
    ),
    _technique(
        "lagrange",
        "Lagrange's theorem",
        "divisibility",
        "lagsubg lagsubg2 oddvds2 oddvds odcl2 oddvdssubg gexod odhash odhash2 subgod",
        r"Lagrange\w*",
        r"orders? of (?:an?|the|any|its) (?:\w+ )?(?:elements?|(?:sub)?groups?)",
    ),
)
