package planner
import ("testing";"math/rand/v2";"fmt")
func TestDbg(t *testing.T){
	n,bad:=0,0
	for seed:=range uint64(4) {
	rng := rand.New(rand.NewPCG(11, seed))
	for range 100 {
		in := randomInput(rng)
		c,b,o,err:=decide(in)
		if err!=nil {continue}
		p:=c.plan(b)
		in2:=in; in2.Previous=&p
		c2,b2,_,err:=decide(in2)
		if err!=nil {t.Fatal(err)}
		n++
		if b2.kept {continue}
		bad++
		fmt.Println(len(c.units),b.shape,b.order(),b.step(),"->",b2.shape,b2.order(),b2.step(), c.prior,c2.prior)
		for _,k:=range o { if k.shape==b2.shape && fmt.Sprint(k.order())==fmt.Sprint(b2.order()) { fmt.Println("  found before:",k.simulated,k.estimate,k.step(),b2.estimate, k.shares,b2.shares) } }
		if c.tried[fmt.Sprint(b2.shape.replicas,b2.order())] {fmt.Println("  tried before")}
	}}
	fmt.Println(n,bad)
}
